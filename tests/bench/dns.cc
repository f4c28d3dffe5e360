// dns.query.*: what judging a query costs its sendto; dns.meter.* and dns.memory.*: dns_meter.cc.
#include <arpa/inet.h>

#include <atomic>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/dns_meter.h"
#include "tests/bench/machine.h"
#include "tests/bench/policy_text.h"
#include "tests/bench/query.h"
#include "tests/bench/sides.h"
#include "tests/bench/stage.h"
#include "userspace/base/clock.h"
#include "userspace/dns/kernel_zones.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/zone_hash.h"
#include "userspace/kernel/dns_maps.h"

namespace stockade::bench {
namespace {

constexpr char kBase[] = "the same sandbox, without the program that judges queries";
// Amounts that no round uses up. Where there is a budget each query that passes is told, so that it can be refunded.
constexpr uint32_t kPlenty = std::numeric_limits<uint32_t>::max() - 1;

struct State {
    const char* name;  // "" = the usual one
    sk_dns_mode mode;
    uint32_t budget;
    std::vector<Op> ops;
};
const State kStates[] = {
    {"", SK_DNS_ALLOWLIST, kPlenty, {Op::kDnsUsual, Op::kDnsNew, Op::kDnsDeepest}},
    {".no_budget", SK_DNS_ALLOWLIST, SK_DNS_UNLIMITED, {Op::kDnsUsual}},
    {"", SK_DNS_OBSERVE, kPlenty, {Op::kDnsLongest}},
};

Target TargetOf(Op op) {
    const double limit = op == Op::kDnsUsual || op == Op::kDnsNew ? 500 : 4000;
    return {.of = Target::Of::kAddedMedian,
            .limit = limit,
            .text = absl::StrCat("at most ", static_cast<int>(limit), " ns added")};
}

// Takes records while it lives, as the agent would.
class Reader {
  public:
    explicit Reader(kernel::RingReader& rings)
        : thread_([this, &rings] {
              const kernel::Sensor::RecordFn drop = [](kernel::Ring, std::span<const uint8_t>) {};
              while (!stop_) {
                  failed_ = failed_ || !rings.Poll(10, drop).ok();
                  rings.Release(rings.Handed());
              }
          }) {}
    ~Reader() {
        stop_ = true;
        thread_.join();
    }
    bool failed() const { return failed_; }

  private:
    std::atomic<bool> stop_ = false, failed_ = false;
    std::thread thread_;
};

struct Scene {
    std::unique_ptr<Stage> stage;
    std::unique_ptr<Machine> machine;
    std::optional<kernel::DnsMaps> dns;
    std::optional<Ports> ports;
    Fd resolver;
    std::unique_ptr<Worker> worker;
    kernel::SlotRef ref;
};

Status Open(const Settings& settings, const dns::Knowledge& knowledge, Scene* scene) {
    SK_ASSIGN_OR_RETURN(scene->stage, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(scene->machine, Machine::Create(settings.backend, scene->stage->launched_cgroup()));
    Machine& machine = *scene->machine;
    SK_ASSIGN_OR_RETURN(scene->dns, kernel::DnsMaps::Create(&machine.programs()));
    std::vector<kernel::DnsKnown> known;
    for (const auto& [zone, value] : dns::KernelZones(knowledge, machine.keys()))
        known.push_back({zone, value});
    SK_RETURN_IF_ERROR(scene->dns->SetKnown(known));
    SK_ASSIGN_OR_RETURN(scene->ports, Ports::Take());
    SK_ASSIGN_OR_RETURN(scene->resolver, HoldResolver());
    SK_ASSIGN_OR_RETURN(const auto policy,
                        machine.Publish(PolicyText(*scene->stage, {.port = scene->ports->closed_port()})));
    SK_ASSIGN_OR_RETURN(const std::string cgroup, scene->stage->NewCgroup());
    SK_ASSIGN_OR_RETURN(scene->worker, Worker::Start({.cgroup = cgroup,
                                                      .file = scene->stage->file(),
                                                      .step = scene->stage->step(),
                                                      .closed_port = scene->ports->closed_port(),
                                                      .udp_port = scene->ports->udp_port()}));
    SK_RETURN_IF_ERROR(machine.Attach(Attached::kPrograms));
    SK_ASSIGN_OR_RETURN(scene->ref, machine.Bind(cgroup, scene->worker->pidfd(), policy.index));
    return machine.slots().Label(scene->ref, scene->worker->pidfd());
}

// A budget id of its own for each turn: nothing is spent, and no name was asked.
Status Begin(Scene& scene, const State& state) {
    sk_dns_budget amounts{};
    amounts.epoch_ns = BootNow();
    amounts.zone_budget = amounts.total_budget = amounts.ranked_budget = amounts.reverse_budget =
        state.budget;
    SK_ASSIGN_OR_RETURN(const kernel::DnsBudgetRef budget, scene.dns->OpenBudget(amounts, {}));
    kernel::DnsBinding binding{.mode = state.mode,
                               .servers = {{.hi = 0, .lo = ntohl(inet_addr(kResolver))}},
                               .tcp = false,
                               .answers = false,
                               .rules = {},
                               .pins = {},
                               .budget = budget};
    binding.rules.push_back({dns::ZoneHash(scene.machine->keys(), kQueryZone),
                             {.flags = SK_DNS_RULE_BELOW, .tier = 0, .budget = 0, .pad = 0}});
    return scene.dns->Bind(scene.ref, binding);
}

StatusOr<uint64_t> Judged(Scene& scene) {
    SK_ASSIGN_OR_RETURN(const sk_state state, scene.machine->slots().ReadState(scene.ref));
    return state.allowed[SK_SECTION_DNS] + state.violations[SK_SECTION_DNS];
}

// The program judges each query of the one side and none of the other.
Status CheckJudged(Scene& scene) {
    for (const State& state : kStates) {
        for (const Op op : state.ops) {
            for (const bool attached : {true, false}) {
                SK_RETURN_IF_ERROR(Begin(scene, state));
                SK_RETURN_IF_ERROR(scene.machine->AttachDns(attached));
                SK_ASSIGN_OR_RETURN(const uint64_t before, Judged(scene));
                SK_RETURN_IF_ERROR(scene.worker->Begin(op, 0));
                SK_ASSIGN_OR_RETURN(const uint64_t calls, scene.worker->Finish());
                SK_ASSIGN_OR_RETURN(const uint64_t after, Judged(scene));
                if (attached ? after - before >= calls : after == before) continue;
                return absl::InternalError(
                    absl::StrCat(NameOf(op), ": ", calls, " queries, and ", after - before, " judged"));
            }
        }
    }
    return absl::OkStatus();
}

Status Measure(const Settings& settings, Scene& scene, std::vector<Figure>* figures) {
    const auto slice = static_cast<uint64_t>(settings.seconds * 1e9 / settings.rounds / 2);
    for (const State& state : kStates) {
        Side base, judged;
        for (int round = 0; round < settings.rounds; round++) {
            SK_RETURN_IF_ERROR(Begin(scene, state));
            SK_RETURN_IF_ERROR(scene.machine->AttachDns(false));
            SK_RETURN_IF_ERROR(MeasureAll(*scene.worker, state.ops, slice, &base));
            SK_RETURN_IF_ERROR(scene.machine->AttachDns(true));
            SK_RETURN_IF_ERROR(MeasureAll(*scene.worker, state.ops, slice, &judged));
        }
        for (const Op op : state.ops) {
            Figure figure =
                Compare(absl::StrCat("dns.query.", NameOf(op), state.name), base[op], kBase, judged[op]);
            figure.target = TargetOf(op);
            figures->push_back(std::move(figure));
        }
    }
    return absl::OkStatus();
}

}  // namespace

Status RunDns(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const dns::Knowledge knowledge, dns::MakeKnowledge({}));
    Scene scene;
    SK_RETURN_IF_ERROR(Open(settings, knowledge, &scene));
    {
        const Reader reader(scene.machine->rings());
        SK_RETURN_IF_ERROR(CheckJudged(scene));
        SK_RETURN_IF_ERROR(Measure(settings, scene, figures));
        if (reader.failed()) return absl::InternalError("the rings could not be read");
    }
    SK_RETURN_IF_ERROR(MeasureMeter(settings, figures));
    return MeasureDnsMemory(scene.machine->programs(), figures);
}

}  // namespace stockade::bench
