// inside.*: what the verdicts cost that allow, by policies of 10 and 1,000 patterns and among 4,096 sandboxes.
#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/machine.h"
#include "tests/bench/policy_text.h"
#include "tests/bench/sides.h"
#include "tests/bench/stage.h"

namespace stockade::bench {
namespace {

// getppid is judged by nobody: what each call inside pays, open and close twice.
const std::vector<Op> kOps = {Op::kGetppid, Op::kOpenClose, Op::kExec, Op::kConnect, Op::kConnectUdp};
constexpr int kSandboxes = 4096;
constexpr char kBase[] = "the same Landlock domain, and an empty program at the end of system calls";
constexpr char kBaseLsm[] = "nothing attached";

sk_section SectionOf(Op op) {
    if (op == Op::kExec) return SK_SECTION_EXEC;
    return op == Op::kOpenClose ? SK_SECTION_FILES : SK_SECTION_NETWORK;
}

std::optional<Target> TargetOf(Op op) {
    if (op == Op::kGetppid) return std::nullopt;
    const double limit = op == Op::kExec ? 3000 : op == Op::kOpenClose ? 500 : 300;
    return Target{.of = Target::Of::kAddedMedian,
                  .limit = limit,
                  .text = absl::StrCat("at most ", static_cast<int>(limit), " ns added")};
}

// One worker in no sandbox, one in a bound cgroup, both in the same Landlock domain.
struct Scene {
    std::unique_ptr<Stage> stage;
    std::unique_ptr<Machine> machine;
    Ports ports;
    Machine::Published few, many;
    std::unique_ptr<Worker> base, inside;
    kernel::SlotRef ref;
    std::vector<kernel::SlotRef> others;
};

Status Open(const Settings& settings, Scene* scene) {
    SK_ASSIGN_OR_RETURN(scene->stage, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(scene->machine, Machine::Create(settings.backend, scene->stage->launched_cgroup()));
    SK_ASSIGN_OR_RETURN(scene->ports, Ports::Take());
    PolicyShape shape{.patterns = 10, .port = scene->ports.closed_port()};
    SK_ASSIGN_OR_RETURN(scene->few, scene->machine->Publish(PolicyText(*scene->stage, shape)));
    shape.patterns = 1000;
    SK_ASSIGN_OR_RETURN(scene->many, scene->machine->Publish(PolicyText(*scene->stage, shape)));
    SK_ASSIGN_OR_RETURN(const std::string cgroup, scene->stage->NewCgroup());
    const bool landlock = scene->machine->backend() == kernel::Backend::kSignal;
    Worker::Options options{.cgroup = scene->stage->base_cgroup(),
                            .file = scene->stage->file(),
                            .step = scene->stage->step(),
                            .closed_port = scene->ports.closed_port(),
                            .udp_port = scene->ports.udp_port(),
                            .landlock = landlock ? &scene->few.compiled.landlock : nullptr};
    SK_ASSIGN_OR_RETURN(scene->base, Worker::Start(options));
    options.cgroup = cgroup;
    SK_ASSIGN_OR_RETURN(scene->inside, Worker::Start(options));
    SK_RETURN_IF_ERROR(scene->machine->Attach(Attached::kPrograms));
    SK_ASSIGN_OR_RETURN(scene->ref, scene->machine->Bind(cgroup, scene->inside->pidfd(), scene->few.index));
    return scene->machine->slots().Label(scene->ref, scene->inside->pidfd());
}

// The calls that are measured are those that are judged, and by a policy that allows them.
Status CheckJudged(Scene& scene) {
    for (const Op op : kOps) {
        if (op == Op::kGetppid) continue;
        SK_ASSIGN_OR_RETURN(const sk_state before, scene.machine->slots().ReadState(scene.ref));
        SK_RETURN_IF_ERROR(scene.inside->Begin(op, 0));
        SK_ASSIGN_OR_RETURN(const uint64_t calls, scene.inside->Finish());
        SK_ASSIGN_OR_RETURN(const sk_state after, scene.machine->slots().ReadState(scene.ref));
        const sk_section section = SectionOf(op);
        if (after.allowed[section] - before.allowed[section] < calls) {
            return absl::InternalError(absl::StrCat(NameOf(op), ": ", calls, " calls, but only ",
                                                    after.allowed[section] - before.allowed[section],
                                                    " were judged"));
        }
        if (after.violations[section] != 0)
            return absl::InternalError(absl::StrCat(NameOf(op), " is a violation"));
    }
    return absl::OkStatus();
}

Status MeasureBase(Scene& scene, uint64_t slice, Side* side) {
    SK_RETURN_IF_ERROR(scene.machine->Attach(Attached::kFloor));
    return MeasureAll(*scene.base, kOps, slice, side);
}

Status MeasureWith(Scene& scene, uint32_t policy_index, uint64_t slice, Side* side) {
    SK_RETURN_IF_ERROR(scene.machine->Attach(Attached::kPrograms));
    SK_RETURN_IF_ERROR(scene.machine->slots().SwapPolicy(scene.ref, policy_index));
    return MeasureAll(*scene.inside, kOps, slice, side);
}

// Empty cgroups that share the policy.
Status BindOthers(Scene& scene) {
    for (int i = 1; i < kSandboxes; i++) {
        SK_ASSIGN_OR_RETURN(const std::string cgroup, scene.stage->NewCgroup());
        SK_ASSIGN_OR_RETURN(const auto ref,
                            scene.machine->Bind(cgroup, scene.base->pidfd(), scene.many.index));
        scene.others.push_back(ref);
    }
    if (scene.machine->slots().live_count() != kSandboxes)
        return absl::InternalError("not all sandboxes are bound");
    return absl::OkStatus();
}

void Report(Scene& scene, Side& base, Side& with, const std::string& what, std::vector<Figure>* figures) {
    const bool lsm = scene.machine->backend() == kernel::Backend::kLsm;
    for (const Op op : kOps) {
        Figure figure = Compare(absl::StrCat("inside.", NameOf(op), ".", what), base[op],
                                lsm ? kBaseLsm : kBase, with[op]);
        figure.target = TargetOf(op);
        figures->push_back(std::move(figure));
    }
}

// 1,000 patterns against 10, of the whole call.
void ReportFlat(Side& few, Side& many, std::vector<Figure>* figures) {
    for (const Op op : kOps) {
        Figure figure =
            Compare(absl::StrCat("inside.", NameOf(op), ".1000_to_10"), few[op], "10 patterns", many[op]);
        figure.target = {.of = Target::Of::kRatio, .limit = 1.3, .text = "within 1.3 times"};
        figures->push_back(std::move(figure));
    }
}

Status Measure(const Settings& settings, Scene& scene, std::vector<Figure>* figures) {
    const auto slice = static_cast<uint64_t>(settings.seconds * 1e9 / settings.rounds / 3);
    Side base, few, many;
    for (int round = 0; round < settings.rounds; round++) {
        SK_RETURN_IF_ERROR(MeasureBase(scene, slice, &base));
        SK_RETURN_IF_ERROR(MeasureWith(scene, scene.few.index, slice, &few));
        SK_RETURN_IF_ERROR(MeasureWith(scene, scene.many.index, slice, &many));
    }
    Report(scene, base, few, "10_patterns", figures);
    Report(scene, base, many, "1000_patterns", figures);
    ReportFlat(few, many, figures);
    SK_RETURN_IF_ERROR(BindOthers(scene));
    Side base_again, crowd;
    for (int round = 0; round < settings.rounds; round++) {
        SK_RETURN_IF_ERROR(MeasureBase(scene, slice, &base_again));
        SK_RETURN_IF_ERROR(MeasureWith(scene, scene.many.index, slice, &crowd));
    }
    Report(scene, base_again, crowd, "4096_sandboxes", figures);
    return absl::OkStatus();
}

}  // namespace

Status RunInside(const Settings& settings, std::vector<Figure>* figures) {
    Scene scene;
    SK_RETURN_IF_ERROR(Open(settings, &scene));
    SK_RETURN_IF_ERROR(CheckJudged(scene));
    return Measure(settings, scene, figures);
}

}  // namespace stockade::bench
