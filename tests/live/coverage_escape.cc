#include <sys/mount.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Cell;
using model::Operation;

Case Escape(Operation operation, const std::string& name, std::vector<std::string> args, bool optional = false) {
    return {.operation = operation, .name = name, .args = std::move(args), .code = SK_CODE_ESCAPE, .optional = optional};
}

void Place(World& world) { (void)mkdir(world.Fill("{in}/place").c_str(), 0755); }

void Mounted(World& world) {
    Place(world);
    (void)mount("tmpfs", world.Fill("{in}/place").c_str(), "tmpfs", 0, nullptr); // the control run tells
}

// A mount of its own with a place for the old root.
Case PivotRoot() {
    Case c = Escape(Operation::PIVOT_ROOT, "pivot_root", {"pivot_root", "{in}/place", "{in}/place/old"});
    c.policy.grants = {"mntns"};
    c.prepare = [](World& world) {
        Mounted(world);
        (void)mkdir(world.Fill("{in}/place/old").c_str(), 0755); // the control run tells
    };
    return c;
}

Case On(Case c, std::function<void(World&)> prepare) {
    c.prepare = std::move(prepare);
    return c;
}

// What the trigger passes is no module: it is refused by the loader itself where nobody else refuses it. A call that fails has no
// effect, so `signal` has nothing to kill for.
bool Reached(World&, const Result& result) { return UnderLsm() && absl::StrContains(result.output, "ENOEXEC"); }

Case Harmless(Case c) {
    c.effect = Reached;
    return c;
}

// The files of /proc and of cgroups may be opened by the policy; what they mean needs a grant all the same.
Case Readable(Case c, std::vector<std::string> read, std::vector<std::string> write = {}) {
    c.policy.read = std::move(read);
    c.policy.write = std::move(write);
    return c;
}

}  // namespace

std::vector<Case> EscapeCases() {
    return {
        Escape(Operation::PTRACE, "ptrace", {"ptrace"}),
        Escape(Operation::PTRACE, "ptrace_me", {"ptrace_me"}),
        Escape(Operation::PROCESS_VM, "process_vm_readv", {"process_vm_readv"}),
        Escape(Operation::PROCESS_VM, "process_vm_writev", {"process_vm_writev"}),
        Readable(Escape(Operation::PROC_MEM, "proc_mem", {"proc_mem"}), {"/proc/**"}),
        Escape(Operation::PIDFD_GETFD, "pidfd_getfd", {"pidfd_getfd"}),
        On(Escape(Operation::MOUNT, "mount", {"mount", "{in}/place"}), Place),
        On(Escape(Operation::MOUNT, "mount_bind", {"mount_bind", "{no}", "{in}/place"}), Place),
        On(Escape(Operation::MOUNT, "move_mount", {"move_mount", "{in}/place", "{no}"}), Mounted),
        Escape(Operation::OPEN_TREE, "open_tree", {"open_tree", "{in}"}),
        On(Escape(Operation::UMOUNT, "umount", {"umount", "{in}/place"}), Mounted),
        PivotRoot(),
        Escape(Operation::CHROOT, "chroot", {"chroot", "{in}"}),
        Escape(Operation::SETNS, "setns", {"setns"}),
        Escape(Operation::UNSHARE_USER, "unshare_user", {"unshare_user"}),
        Escape(Operation::UNSHARE_USER, "clone_user", {"clone_user"}),
        Escape(Operation::UNSHARE_MOUNT, "unshare_mount", {"unshare_mount"}),
        Escape(Operation::UNSHARE_MOUNT, "clone_mount", {"clone_mount"}),
        Escape(Operation::BPF, "bpf", {"bpf"}),
        Escape(Operation::PERF_EVENT, "perf_event_open", {"perf_event_open"}, true),
        Escape(Operation::IO_URING, "io_uring_setup", {"io_uring_setup"}, true),
        Escape(Operation::USERFAULTFD, "userfaultfd", {"userfaultfd"}, true),
        Escape(Operation::KEYCTL, "add_key", {"add_key"}, true),
        Escape(Operation::KEYCTL, "keyctl", {"keyctl"}, true),
        Harmless(Escape(Operation::MODULE, "init_module", {"init_module"}, true)),
        Harmless(Escape(Operation::MODULE, "finit_module", {"finit_module", "{in}/file"}, true)),
        Escape(Operation::KEXEC, "kexec_load", {"kexec_load"}, true),
        Readable(Escape(Operation::CGROUP_PROCS, "cgroup_procs", {"open_truncate", "{cgroup}/cgroup.procs"}), {}, {"{cgroup}/**"}),
    };
}

}  // namespace stockade::live
