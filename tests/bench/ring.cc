// ring.*: records that are read and decoded in a second while none is lost.

#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/machine.h"
#include "tests/bench/policy_text.h"
#include "tests/bench/stage.h"
#include "tests/bench/worker.h"
#include "userspace/base/clock.h"
#include "userspace/decode/decode.h"

namespace stockade::bench {
namespace {

// A sandbox has telemetry for 20,000 records a second of its own (bpf/lib/judge.h): one alone cannot fill the ring, and
// five are what reaches the target.
constexpr int kProducers[] = {1, 2, 4, 5, 6, 8, 16};

struct Producer {
    std::unique_ptr<Worker> worker;
    kernel::SlotRef ref;
};

struct Heard {
    uint64_t events = 0;
    uint64_t undecoded = 0;
    uint64_t lost = 0;
    uint64_t suppressed = 0;
    uint64_t calls = 0;
    double per_second = 0;
};

StatusOr<Producer> StartProducer(Stage& stage, Machine& machine, const Ports& ports, uint32_t policy_index) {
    Producer producer;
    SK_ASSIGN_OR_RETURN(const std::string cgroup, stage.NewCgroup());
    SK_ASSIGN_OR_RETURN(producer.worker, Worker::Start({.cgroup = cgroup,
                                                        .file = stage.file(),
                                                        .step = stage.step(),
                                                        .closed_port = ports.closed_port(),
                                                        .udp_port = ports.udp_port(),
                                                        .preferred = false}));
    SK_ASSIGN_OR_RETURN(producer.ref, machine.Bind(cgroup, producer.worker->pidfd(), policy_index));
    SK_RETURN_IF_ERROR(machine.slots().Label(producer.ref, producer.worker->pidfd()));
    return producer;
}

Status Sum(Machine& machine, const std::vector<Producer>& producers, int sign, Heard* heard) {
    for (const Producer& producer : producers) {
        SK_ASSIGN_OR_RETURN(const sk_state state, machine.slots().ReadState(producer.ref));
        heard->lost += sign * state.lost;
        heard->suppressed += sign * state.suppressed;
    }
    return absl::OkStatus();
}

StatusOr<Heard> Listen(Machine& machine, std::vector<Producer>& producers, uint64_t wall_ns) {
    Heard heard;
    decode::Decoder decoder({.node = "bench", .wall_offset_ns = WallNow() - BootNow()});
    v1::Event event;
    const kernel::Sensor::RecordFn count = [&](kernel::Ring, std::span<const uint8_t> record) {
        heard.events++;
        if (!decoder.Decode(record, &event).ok()) heard.undecoded++;
    };
    SK_RETURN_IF_ERROR(Sum(machine, producers, -1, &heard));
    const uint64_t begin = BootNow();
    for (Producer& producer : producers) SK_RETURN_IF_ERROR(producer.worker->Begin(Op::kOpenClose, wall_ns));
    const auto poll = [&](int timeout_ms) {
        StatusOr<int> polled = machine.rings().Poll(timeout_ms, count);
        machine.rings().Release(machine.rings().Handed());
        return polled;
    };
    while (BootNow() - begin < wall_ns) SK_RETURN_IF_ERROR(poll(20).status());
    for (Producer& producer : producers) {
        SK_ASSIGN_OR_RETURN(const uint64_t calls, producer.worker->Finish());
        heard.calls += calls;
    }
    for (int rest = 1; rest > 0;) {
        SK_ASSIGN_OR_RETURN(rest, poll(0));
    }
    heard.per_second = static_cast<double>(heard.events) * 1e9 / static_cast<double>(BootNow() - begin);
    SK_RETURN_IF_ERROR(Sum(machine, producers, 1, &heard));
    return heard;
}

Status Check(const Heard& heard) {
    if (heard.undecoded != 0)
        return absl::InternalError(absl::StrCat(heard.undecoded, " records could not be decoded"));
    // What was neither heard nor said to be lost or left out would be a hole.
    if (heard.events + heard.lost + heard.suppressed < heard.calls) {
        return absl::InternalError(absl::StrCat(heard.calls, " opens, but only ", heard.events, " events, ",
                                                heard.lost, " lost and ", heard.suppressed, " left out"));
    }
    return absl::OkStatus();
}

}  // namespace

Status RunRing(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto stage, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(const auto machine, Machine::Create(settings.backend, stage->launched_cgroup()));
    SK_ASSIGN_OR_RETURN(const Ports ports, Ports::Take());
    SK_RETURN_IF_ERROR(machine->Attach(Attached::kPrograms));
    SK_ASSIGN_OR_RETURN(const auto policy, machine->Publish(PolicyText(
                                               *stage, {.port = ports.closed_port(), .record_files = true})));
    std::vector<Producer> producers;
    Figure best{.name = "ring.events_per_second", .unit = "1/s"};
    for (const int wanted : kProducers) {
        while (static_cast<int>(producers.size()) < wanted) {
            SK_ASSIGN_OR_RETURN(Producer producer, StartProducer(*stage, *machine, ports, policy.index));
            producers.push_back(std::move(producer));
        }
        SK_ASSIGN_OR_RETURN(const Heard heard,
                            Listen(*machine, producers, static_cast<uint64_t>(settings.seconds * 1e9)));
        SK_RETURN_IF_ERROR(Check(heard));
        if (heard.lost == 0 && (!best.with || heard.per_second > best.with->p50)) {
            best.with = QuantilesOf({heard.per_second});
            best.note = absl::StrCat("by ", wanted, " sandboxes, ", heard.suppressed,
                                     " left out by their own rate, 0 lost");
        }
        Figure figure{.name = absl::StrCat("ring.", wanted, "_producers"), .unit = "1/s"};
        figure.with = QuantilesOf({heard.per_second});
        figure.note = absl::StrCat(heard.lost, " lost, ", heard.suppressed, " left out by their own rate, ",
                                   heard.calls, " opens");
        figures->push_back(std::move(figure));
    }
    best.target = {.of = Target::Of::kWithAtLeast, .limit = 100000, .text = "at least 100,000 a second"};
    if (!best.with) best.skipped = "records were lost at every number of producers";
    figures->push_back(std::move(best));
    return absl::OkStatus();
}

}  // namespace stockade::bench
