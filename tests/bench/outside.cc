// outside.*: what a task in no sandbox pays while a sandbox exists.
#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/machine.h"
#include "tests/bench/policy_text.h"
#include "tests/bench/sides.h"
#include "tests/bench/stage.h"

namespace stockade::bench {
namespace {

const std::vector<Op> kOps = {Op::kGetppid, Op::kOpenClose, Op::kExec, Op::kConnect, Op::kUdpSend};

// Falco's modern probe with its default set adds so much on the test machine (DESIGN section 11); a third of it is the target.
double FalcoAdds(Op op) {
    switch (op) {
        case Op::kOpenClose:
            return 1480;
        case Op::kExec:
            return 21000;
        case Op::kConnect:
            return 2360;
        case Op::kUdpSend:
            return 1100;
        case Op::kGetppid:
            return 107;
        case Op::kConnectUdp:
        case Op::kDnsUsual:
        case Op::kDnsNew:
        case Op::kDnsDeepest:
        case Op::kDnsLongest:
            break;
    }
    return 0;
}

Target TargetOf(Op op) {
    if (op == Op::kGetppid)
        return {.of = Target::Of::kOverFloor, .limit = 15, .text = "at most 15 ns over the floor"};
    const double third = FalcoAdds(op) / 3;
    return {.of = Target::Of::kAddedMedian,
            .limit = third,
            .text = absl::StrCat("below ", static_cast<int>(third), " ns, a third of Falco's")};
}

// An idle sandbox, so that all programs stand; it must have seen nothing of what the other task did.
Status CheckIdle(Machine& machine, const kernel::SlotRef& ref) {
    SK_ASSIGN_OR_RETURN(const sk_state state, machine.slots().ReadState(ref));
    for (const uint64_t allowed : state.allowed) {
        if (allowed != 0)
            return absl::InternalError("what a task outside did was charged to the idle sandbox");
    }
    if (state.tasks != 1)
        return absl::InternalError(absl::StrCat("the idle sandbox has ", state.tasks, " tasks and not 1"));
    return absl::OkStatus();
}

Status Measure(const Settings& settings, Machine& machine, Worker& worker, std::map<Attached, Side>* sides) {
    const auto slice = static_cast<uint64_t>(settings.seconds * 1e9 / settings.rounds / 3);
    for (int round = 0; round < settings.rounds; round++) {
        for (const Attached what : {Attached::kNothing, Attached::kFloor, Attached::kPrograms}) {
            SK_RETURN_IF_ERROR(machine.Attach(what));
            SK_RETURN_IF_ERROR(MeasureAll(worker, kOps, slice, &(*sides)[what]));
        }
    }
    return absl::OkStatus();
}

}  // namespace

Status RunOutside(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto stage, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(const auto machine, Machine::Create(settings.backend, stage->launched_cgroup()));
    SK_ASSIGN_OR_RETURN(const Ports ports, Ports::Take());
    SK_ASSIGN_OR_RETURN(const std::string cgroup, stage->NewCgroup());
    Worker::Options options{.cgroup = cgroup,
                            .file = stage->file(),
                            .step = stage->step(),
                            .closed_port = ports.closed_port(),
                            .udp_port = ports.udp_port()};
    SK_ASSIGN_OR_RETURN(const auto idle, Worker::Start(options));
    options.cgroup = stage->base_cgroup();
    SK_ASSIGN_OR_RETURN(const auto worker, Worker::Start(options));
    SK_RETURN_IF_ERROR(machine->Attach(Attached::kPrograms));
    SK_ASSIGN_OR_RETURN(const auto policy,
                        machine->Publish(PolicyText(*stage, {.port = ports.closed_port()})));
    SK_ASSIGN_OR_RETURN(const auto ref, machine->Bind(cgroup, idle->pidfd(), policy.index));
    SK_RETURN_IF_ERROR(machine->slots().Label(ref, idle->pidfd()));
    std::map<Attached, Side> sides;
    SK_RETURN_IF_ERROR(Measure(settings, *machine, *worker, &sides));
    SK_RETURN_IF_ERROR(CheckIdle(*machine, ref));
    for (const Op op : kOps) {
        Figure figure = Compare(absl::StrCat("outside.", NameOf(op)), sides[Attached::kNothing][op],
                                "nothing attached", sides[Attached::kPrograms][op]);
        if (machine->backend() == kernel::Backend::kSignal) {
            figure.floor = Median(sides[Attached::kFloor][op].samples);
            figure.over_floor =
                Differences(sides[Attached::kFloor][op].medians, sides[Attached::kPrograms][op].medians);
            figure.target = TargetOf(op);
        } else {
            figure.target = {.of = Target::Of::kRatio, .limit = 1.02, .text = "not measurable (within 1.02)"};
        }
        figures->push_back(std::move(figure));
    }
    return absl::OkStatus();
}

}  // namespace stockade::bench
