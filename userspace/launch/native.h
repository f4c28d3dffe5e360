// The native runtime: a sandbox of namespaces, mounts, seccomp and Landlock on this host.
//
//   SK_ASSIGN_OR_RETURN(CgroupHome home, FindCgroupHome());
//   SK_ASSIGN_OR_RETURN(SandboxCgroup cgroup, CreateCgroup(home, id, limits));
//   NativeSpec spec;  spec.id = id;  spec.argv = {"python3", "-c", "print(42)"};  ...
//   SK_ASSIGN_OR_RETURN(auto sandbox, NativeSandbox::Create(std::move(spec)));
//   // ... bind a slot to cgroup_fd, Label(sandbox->pidfd()), attest coverage ...
//   SK_ASSIGN_OR_RETURN(ExecResult exec, sandbox->Release());   // the command runs now
//   SK_ASSIGN_OR_RETURN(int status, sandbox->Wait());           // 0..255, as a shell says it
//   SK_ASSIGN_OR_RETURN(DestroyReport report, sandbox->Destroy());
//
// What no command changes can be made ahead, and the rest later: Prepare and Complete, which are the two halves of
// Create.
//
// Order of life: Create makes everything and runs nothing of the caller's. The task behind
// pidfd() is the sandbox's init (pid 1 inside, code of ours): it waits for Release on a pipe, has
// opened all that it will ever need, and after Release only forks, waits, and writes to pipes, so
// any policy suits it. The command is its child and inherits its label.
//
// Threads: Create ties the sandbox's life to the calling thread (parent-death signal) and to a
// pipe held by this object: when either goes, all of the sandbox is killed. One caller at a time,
// except Signal, which any thread may call between Release and Destroy.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/launch/cgroup.h"
#include "userspace/launch/landlock.h"
#include "userspace/launch/seccomp.h"

namespace stockade::launch {

// A directory or file of the host shown inside. `source` is an O_PATH (or any) descriptor that
// CheckBindSource has passed; `target` an absolute path inside.
struct Bind {
    Fd source;
    std::string target;
    // Where the file system can be idmapped, the caller's files are the sandbox's own here. Where
    // not, the sandbox writes only what its uid may: usually nothing.
    bool writable = false;
};

// One file of `in` that is to be shown.
struct InFile {
    std::string path;  // relative; no empty, "." or ".." component
    uint64_t bytes = 0;
    std::string sha256;  // 32 bytes
};

struct RlimitRow {
    int resource = 0;  // RLIMIT_*
    uint64_t soft = 0;
    uint64_t hard = 0;  // lowered to what the launcher may set, never raised
};

enum class Egress { kNone, kVeth };

struct NativeSpec {
    std::string id;                 // [A-Za-z0-9_]{1,64}; names the cgroup and the host name
    std::vector<std::string> argv;  // argv[0] without '/' is looked up in env's PATH, inside
    std::vector<std::string> env;   // "K=V"; exactly this is the environment
    std::string cwd = "/";          // inside; must exist there
    uid_t uid = 0;                  // of the sandbox alone; 0 is refused
    gid_t gid = 0;                  // 0 is refused
    uid_t caller_uid = 0;           // who owns /in on the host and gets /out
    gid_t caller_gid = 0;

    SandboxCgroup cgroup;  // of CreateCgroup; owned from here on, removed by Destroy

    // Standard streams, borrowed until Create returns. -1 is /dev/null. Ignored with `tty`.
    // Pipes and /dev/null; anything else is refused. For a terminal ask for `tty`.
    int stdio[3] = {-1, -1, -1};
    bool tty = false;       // a pty pair inside; master() is the launcher's side
    uint16_t tty_rows = 0;  // 0 = left alone
    uint16_t tty_columns = 0;

    Fd in;                                      // directory shown read-only at /in; none = no /in
    uint64_t in_copy_max_bytes = 256ull << 20;  // bound of the copy where idmapping fails, and of one by list
    // Only these of `in`, as copies: what was looked at is what is shown, whoever writes there meanwhile. Create fails where one has
    // another content by now.
    bool in_listed = false;
    std::vector<InFile> in_files;
    uint64_t out_max_bytes = 256ull << 20;      // size of /out; 0 = no /out
    uint64_t tmp_max_bytes = 64ull << 20;       // size of /tmp
    std::vector<Bind> binds;                    // at most kMaxBinds
    Fd rootfs;                                  // directory that replaces the host's /usr, /bin, ...

    Egress egress = Egress::kNone;
    bool egress_dns = false;           // let the sandbox reach port 53 of its veth's host end
    std::vector<uint16_t> host_ports;  // of the host's 127.0.0.1, served on the sandbox's own

    LandlockPlan landlock;           // empty = none
    SeccompProgram seccomp;          // of CompileSeccomp, told of writable binds; refused when empty
    std::vector<RlimitRow> rlimits;  // added to the defaults, a row replaces its default
};

// What of this host a base shows, by device and inode: a base made ahead is of the host as it was then. Mounts below
// these are not in it.
std::string HostView();
// Whether a sandbox that Prepare has made can become this one.
bool FitsPrepared(const NativeSpec& spec);

inline constexpr size_t kMaxBinds = 64;           // mounts per sandbox; real uses have a handful
inline constexpr size_t kMaxInFiles = 4096;     // of in_files
inline constexpr size_t kMaxHostPorts = 32;       // listening sockets in the launcher
inline constexpr size_t kMaxArgBytes = 1u << 20;  // argv + env; half of what execve takes

enum class InKind { kNone, kIdmapped, kCopied };

struct ExecResult {
    bool started = false;  // the command's execve succeeded
    int error = 0;         // errno otherwise
    std::string stage;     // what failed: "execve", "landlock", ...
    int exit_status = 0;   // 126 or 127 when the command could not be run; 125 when the
                           // sandbox itself failed at the last step
};

struct DestroyReport {
    uint64_t kill_ns = 0;     // BootNow() at the write to cgroup.kill
    uint64_t empty_ns = 0;    // ... when populated went to 0
    uint64_t removed_ns = 0;  // ... when cgroup and network were verified to be gone
};

class NativeSandbox {
  public:
    // Fails with kInvalidArgument for a spec that no host could serve, else with what was tried.
    // On failure nothing is left: no process, mount, link; the cgroup is removed as well.
    static StatusOr<std::unique_ptr<NativeSandbox>> Create(NativeSpec spec);
    // Of `base` only id and cgroup count, of all else it has what a NativeSpec begins with: no rootfs, no egress, the
    // usual sizes. Returns when it stands and waits.
    static StatusOr<std::unique_ptr<NativeSandbox>> Prepare(NativeSpec base);
    // Once, after Prepare. kInvalidArgument for a spec that needs another base; `spec.cgroup` stays empty. On failure
    // nothing is left, as with Create.
    virtual Status Complete(NativeSpec spec) = 0;
    virtual ~NativeSandbox() = default;  // destroys what Destroy has not

    virtual pid_t pid() const = 0;   // of the init, in the launcher's pid namespace
    virtual int pidfd() const = 0;   // borrowed; readable (POLLIN) when the sandbox has ended
    virtual int master() const = 0;  // borrowed pty master, -1 without `tty`
    virtual InKind in_kind() const = 0;
    virtual int landlock_abi() const = 0;  // of the kernel; 0 = none. The plan was cut down to it
    // Directory of what the sandbox wrote to /out; valid until this object dies, also after
    // Destroy. -1 without /out. For CopyOut.
    virtual int out_fd() const = 0;
    // Host end of the veth, "10.x.y.z"; empty without egress. A resolver may listen there.
    virtual std::string host_address() const = 0;
    virtual std::string host_link() const = 0;  // its name
    // Kills all that is in its cgroup, and does not wait.
    virtual void Kill() = 0;

    // Lets the command go. Its execve may wait, for a slow file system or a lease: exec_fd() is
    // readable when it is through, and then FinishRelease does not block.
    virtual Status StartRelease() = 0;
    virtual int exec_fd() const = 0;  // borrowed; -1 after FinishRelease
    // OK with started=false when execve failed or the sandbox died before.
    virtual StatusOr<ExecResult> FinishRelease() = 0;
    // Both, with the wait between them.
    StatusOr<ExecResult> Release() {
        SK_RETURN_IF_ERROR(StartRelease());
        return FinishRelease();
    }
    // To the command (not its children; those of a terminal get theirs through the pty).
    virtual Status Signal(int signo) = 0;
    // Blocks until the command has ended: its exit status, 128+n for a signal, 126/127 when
    // execve failed, 137 when the sandbox was killed as a whole. Repeatable.
    virtual StatusOr<int> Wait() = 0;
    // After Wait: a signal ended the command. It may exit with any status, also with 137.
    virtual bool signalled() const = 0;
    // Kills and removes everything; idempotent. kDeadlineExceeded when tasks outlive
    // `timeout_ms` (D state: "kill pending"); call again later.
    virtual StatusOr<DestroyReport> Destroy(int timeout_ms = 10000) = 0;
};

struct Leftovers {
    int cgroups = 0;
    int networks = 0;
    std::vector<std::string> found;   // "cgroup sbx_...", "network stk7"
    std::vector<std::string> failed;  // what could not be removed, and why
};
struct LeftoverOptions {
    bool dry_run = false;                                // nothing is removed
    std::function<bool(const std::string&)> is_known{};  // ids of sandboxes that are somebody's: not looked at. Empty = none
};

// Removes what launchers that were killed have left: cgroups of the home that nobody holds, with
// their tasks, veth links and nftables. Sandboxes whose launcher lives are not touched.
Leftovers CleanLeftovers(const CgroupHome& home, const LeftoverOptions& options = {});

}  // namespace stockade::launch
