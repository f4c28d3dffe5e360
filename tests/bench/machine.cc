#include "tests/bench/machine.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "bpf/bench_floor.skel.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/attach.h"
#include "userspace/kernel/probe.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::bench {
namespace {

Status FirstError(const std::vector<policy::Diagnostic>& diagnostics) {
    for (const policy::Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity == policy::Severity::kError)
            return absl::InvalidArgumentError(policy::ToString(diagnostic));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Machine>> Machine::Create(kernel::Backend backend,
                                                   const std::string& network_cgroup) {
    std::unique_ptr<Machine> machine(new Machine());
    SK_ASSIGN_OR_RETURN(const kernel::ProbeReport report, kernel::Probe({}));
    SK_ASSIGN_OR_RETURN(machine->backend_, kernel::Choose(report, backend));
    SK_ASSIGN_OR_RETURN(machine->network_, Fd::Open(network_cgroup, O_RDONLY | O_DIRECTORY));
    if (getrandom(&machine->keys_, sizeof(machine->keys_), 0) != sizeof(machine->keys_))
        return ErrnoStatus(errno, "draw the hash keys");
    machine->keys_.k1 |= 1;
    machine->keys_.k2 |= 1;
    SK_ASSIGN_OR_RETURN(machine->programs_,
                        kernel::Programs::Load({.backend = machine->backend_,
                                                .keys = machine->keys_,
                                                .follows = report.has(kernel::Feature::PROG_FEXIT),
                                                .reuse_maps_dir = "",
                                                .earlier_sets = {}}));
    SK_RETURN_IF_ERROR(machine->Fill());
    machine->floor_ = bench_floor__open_and_load();
    if (!machine->floor_) return ErrnoStatus(errno, "load the empty program");
    return machine;
}

Status Machine::Fill() {
    const uint32_t zero = 0;
    sk_config config{};
    config.keys = keys_;
    config.abi = SK_CONFIG_ABI;
    SK_RETURN_IF_ERROR(
        NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("config"), &zero, &config, BPF_ANY),
                       "write the configuration map"));
    policies_ = std::make_unique<kernel::PolicyMaps>(kernel::PolicyMaps::OuterFds{programs_->MapFd("policies_small"), programs_->MapFd("policies_medium"), programs_->MapFd("policies_large")});
    SK_ASSIGN_OR_RETURN(kernel::Slots slots, kernel::Slots::Create(programs_.get()));
    slots_ = std::make_unique<kernel::Slots>(std::move(slots));
    SK_ASSIGN_OR_RETURN(
        rings_, kernel::RingReader::Create({programs_->MapFd("lifecycle_ring"), programs_->MapFd("violation_ring"),
                                            programs_->MapFd("telemetry_ring")}));
    return absl::OkStatus();
}

Machine::~Machine() {
    floor_link_.Reset();
    if (floor_) bench_floor__destroy(floor_);
}

Status Machine::Attach(Attached what) {
    floor_link_.Reset();
    if (what != Attached::kPrograms) {
        cgroup_links_.clear();
        dns_link_.Reset();
        calls_.clear();
        programs_->links().clear();
    }
    if (what == Attached::kFloor && backend_ == kernel::Backend::kSignal) {
        const bpf_program* program = floor_->progs.bench_floor;
        SK_ASSIGN_OR_RETURN(floor_link_, kernel::AttachProgram(program, bpf_program__fd(program), -1));
    }
    if (what != Attached::kPrograms || !programs_->links().empty()) return absl::OkStatus();
    SK_RETURN_IF_ERROR(programs_->AttachAll());
    SK_ASSIGN_OR_RETURN(calls_, programs_->AttachCalls());
    if (backend_ == kernel::Backend::kSignal && calls_.empty())
        return absl::InternalError("no program at the end of system calls");
    SK_ASSIGN_OR_RETURN(cgroup_links_, programs_->AttachCgroup(network_.get(), ""));
    return absl::OkStatus();
}

Status Machine::AttachDns(bool attached) {
    bpf_program* program = programs_->Program("dns_egress");
    if (!program) return absl::InternalError("no program dns_egress");
    bpf_prog_info ours{};
    uint32_t size = sizeof(ours);
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_obj_get_info_by_fd(bpf_program__fd(program), &ours, &size), "look at dns_egress"));
    dns_link_.Reset();
    SK_RETURN_IF_ERROR(Detach(ours.id));
    if (!attached) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(dns_link_, kernel::AttachProgram(program, bpf_program__fd(program), network_.get()));
    return absl::OkStatus();
}

Status Machine::Detach(uint32_t program_id) {
    for (Fd& link : cgroup_links_) {
        bpf_link_info info{};
        uint32_t size = sizeof(info);
        if (!link.ok()) continue;
        SK_RETURN_IF_ERROR(
            NegErrnoStatus(bpf_obj_get_info_by_fd(link.get(), &info, &size), "look at a link"));
        if (info.prog_id == program_id) link.Reset();
    }
    return absl::OkStatus();
}

StatusOr<Machine::Published> Machine::Publish(const std::string& text) {
    policy::ParseResult parsed = policy::ParseFiles({{"bench.yaml", text}});
    SK_RETURN_IF_ERROR(FirstError(parsed.diagnostics));
    std::vector<policy::Diagnostic> diagnostics;
    policy::PolicyLibrary library;
    library.Add(std::move(parsed.policies), diagnostics);
    auto resolved = library.Resolve("bench", diagnostics);
    SK_RETURN_IF_ERROR(FirstError(diagnostics));
    if (!resolved) return absl::InternalError("the policy does not resolve");
    SK_ASSIGN_OR_RETURN(const Fd root, Fd::Open("/", O_PATH));
    Published published;
    SK_ASSIGN_OR_RETURN(published.compiled, policy::Compile(*resolved, keys_, {.root_fd = root.get()}));
    SK_ASSIGN_OR_RETURN(published.index, policies_->Acquire(published.compiled.cells));
    return published;
}

StatusOr<kernel::SlotRef> Machine::Bind(const std::string& cgroup, int root_pidfd, uint32_t policy_index) {
    SK_ASSIGN_OR_RETURN(const Fd dir, Fd::Open(cgroup, O_RDONLY | O_DIRECTORY));
    return slots_->Bind({.cgroup_fd = dir.get(), .root_pidfd = root_pidfd, .policy_index = policy_index});
}

StatusOr<uint64_t> Machine::ReadError(uint32_t site) {
    const int cpus = libbpf_num_possible_cpus();
    if (cpus < 0) return NegErrnoStatus(cpus, "count the CPUs");
    std::vector<uint64_t> values(static_cast<size_t>(cpus));
    if (bpf_map_lookup_elem(programs_->MapFd("errors"), &site, values.data()) != 0)
        return ErrnoStatus(errno, "read the error counters");
    uint64_t sum = 0;
    for (const uint64_t value : values) sum += value;
    return sum;
}

}  // namespace stockade::bench
