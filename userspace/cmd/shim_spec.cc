#include "userspace/cmd/shim_spec.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

std::vector<sock_filter> Filters(const std::string& bytes) {
    std::vector<sock_filter> filters(bytes.size() / sizeof(sock_filter));
    std::memcpy(filters.data(), bytes.data(), filters.size() * sizeof(sock_filter));
    return filters;
}

launch::LandlockPlan Plan(const api::Landlock& landlock) {
    launch::LandlockPlan plan;
    plan.handled = landlock.handled();
    plan.scope_signals = landlock.scope_signals();
    plan.scope_abstract = landlock.scope_abstract();
    for (const api::LandlockPath& path : landlock.paths()) {
        plan.paths.push_back({.path = path.path(), .rights = path.rights()});
    }
    return plan;
}

launch::CgroupLimits Limits(const api::Limits& limits) {
    return {.pids_max = limits.pids(),
            .memory_max_bytes = limits.memory_bytes(),
            .swap_max_bytes = limits.swap_bytes(),
            .cpu_max_percent = limits.cpu_percent()};
}

// Borrowed: the packet keeps it open until the sandbox is made.
int Borrow(const api::Packet& order, api::FdRole role) {
    for (int i = 0; i < order.message.fds_size(); ++i) {
        if (order.message.fds(i) == role) return order.fds[i].get();
    }
    return -1;
}

Status AddBinds(api::Packet& order, launch::NativeSpec* spec) {
    for (const api::Bind& bind : order.message.start_shim().run().binds()) {
        Fd source = order.Take(api::FD_BIND);
        if (!source.ok()) {
            return absl::InvalidArgumentError(absl::StrCat("no descriptor for --bind ", bind.source()));
        }
        spec->binds.push_back({.source = std::move(source),
                               .target = bind.target().empty() ? bind.source() : bind.target(),
                               .writable = bind.writable()});
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<launch::NativeSpec> MakeSpec(api::Packet& order) {
    const api::StartShim& start = order.message.start_shim();
    const api::Run& run = start.run();
    launch::NativeSpec spec;
    spec.id = start.id();
    spec.argv.assign(run.argv().begin(), run.argv().end());
    spec.env.assign(run.env().begin(), run.env().end());
    if (!run.cwd().empty()) spec.cwd = run.cwd();
    spec.uid = start.uid();
    spec.gid = start.uid();
    spec.caller_uid = run.caller_uid();
    spec.caller_gid = run.caller_gid();
    spec.tty = run.tty();
    spec.tty_rows = static_cast<uint16_t>(run.rows());
    spec.tty_columns = static_cast<uint16_t>(run.columns());
    spec.stdio[0] = Borrow(order, api::FD_STDIN);
    spec.stdio[1] = Borrow(order, api::FD_STDOUT);
    spec.stdio[2] = Borrow(order, api::FD_STDERR);
    spec.in = order.Take(api::FD_IN);
    spec.in_listed = run.has_contract();
    for (const api::InputFile& file : run.contract().inputs())
        spec.in_files.push_back({.path = file.path(), .bytes = file.size(), .sha256 = file.sha256()});
    spec.rootfs = order.Take(api::FD_ROOTFS);
    if (run.out_bytes() > 0) spec.out_max_bytes = run.out_bytes();
    SK_RETURN_IF_ERROR(AddBinds(order, &spec));
    spec.egress_dns = start.dns();
    spec.egress = start.egress() ? launch::Egress::kVeth : launch::Egress::kNone;
    for (const uint32_t port : start.host_ports()) spec.host_ports.push_back(static_cast<uint16_t>(port));
    spec.landlock = Plan(start.landlock());
    spec.seccomp = {.profile = Filters(start.seccomp_profile()), .floor = Filters(start.seccomp_floor())};
    return spec;
}

StatusOr<launch::SandboxCgroup> MakeCgroup(const api::StartShim& start) {
    SK_ASSIGN_OR_RETURN(const launch::CgroupHome home, launch::FindCgroupHome(start.cgroup_name()));
    return launch::CreateCgroup(home, start.id(), Limits(start.limits()));
}

}  // namespace stockade::cmd
