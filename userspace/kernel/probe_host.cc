// What needs no BPF: mounts, the LSM list, capabilities, limits and plain system calls.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/bpffs.h"
#include "userspace/kernel/probe_parts.h"

namespace stockade::kernel::probe {
namespace {

// A mount table of a container host has some thousand lines of 200 bytes.
constexpr size_t kMountInfoBytes = 16 << 20;
constexpr char kUsualCgroup[] = "/sys/fs/cgroup";

// mountinfo writes blank, tab, newline and backslash as \ooo.
std::string Unescape(absl::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                            (text[i + 3] - '0')));
            i += 3;
        } else {
            out.push_back(text[i]);
        }
    }
    return out;
}

// The mount of this type at `usual`, else the first of it that shows the file system's root
// (a bind of a subtree inside some container's view would hide the rest), else any.
std::string FindMount(absl::string_view mountinfo, absl::string_view type, absl::string_view usual) {
    std::string best;
    bool best_is_root = false;
    for (absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
        std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
        if (halves.size() != 2) continue;
        std::vector<absl::string_view> fields = absl::StrSplit(halves[0], ' ');
        std::vector<absl::string_view> tail = absl::StrSplit(halves[1], ' ');
        if (fields.size() < 6 || tail.empty() || tail[0] != type) continue;
        std::string point = Unescape(fields[4]);
        if (point == usual) return point;
        bool is_root = fields[3] == "/";
        if (best.empty() || (is_root && !best_is_root)) {
            best = point;
            best_is_root = is_root;
        }
    }
    return best;
}

// A mount of the type that hangs nowhere and goes with its descriptor.
StatusOr<Fd> DetachedMount(const char* type) {
    Fd context(static_cast<int>(syscall(SYS_fsopen, type, 1 /* FSOPEN_CLOEXEC */)));
    if (!context.ok()) return ErrnoStatus(errno, absl::StrCat("fsopen ", type));
    if (syscall(SYS_fsconfig, context.get(), 6 /* FSCONFIG_CMD_CREATE */, nullptr, nullptr, 0) != 0) {
        return ErrnoStatus(errno, absl::StrCat("fsconfig ", type));
    }
    Fd mount(static_cast<int>(syscall(SYS_fsmount, context.get(), 1 /* FSMOUNT_CLOEXEC */, 0)));
    if (!mount.ok()) return ErrnoStatus(errno, absl::StrCat("fsmount ", type));
    return mount;
}

void FillMounts(ProbeReport& report) {
    auto mountinfo = ReadFile("/proc/self/mountinfo", kMountInfoBytes);
    if (!mountinfo.ok()) {
        Set(report, Feature::CGROUP2, mountinfo.status());
        Set(report, Feature::BPFFS, mountinfo.status());
        return;
    }
    report.cgroup2_mount = FindMount(*mountinfo, "cgroup2", kUsualCgroup);
    report.at(Feature::CGROUP2) = report.cgroup2_mount.empty()
                                      ? FeatureState{false, "not mounted anywhere"}
                                      : FeatureState{true, report.cgroup2_mount};
    report.bpffs_mount = FindMount(*mountinfo, "bpf", kUsualBpffs);
    if (!report.bpffs_mount.empty()) {
        report.at(Feature::BPFFS) = {true, report.bpffs_mount};
        return;
    }
    Status mountable = DetachedMount("bpf").status();
    report.at(Feature::BPFFS) = {mountable.ok(), mountable.ok()
                                                     ? "mountable, not mounted yet"
                                                     : std::string(mountable.message())};
}

// The active LSMs in the order in which they are asked. securityfs is often not mounted in
// containers and small guests: then from a detached mount of it.
StatusOr<std::vector<std::string>> ReadLsms() {
    constexpr size_t kListBytes = 4096;
    auto text = ReadFile("/sys/kernel/security/lsm", kListBytes);
    if (!text.ok()) {
        SK_ASSIGN_OR_RETURN(Fd mount, DetachedMount("securityfs"));
        SK_ASSIGN_OR_RETURN(Fd file, Fd::OpenAt(mount, "lsm", O_RDONLY));
        text = ReadAll(file.get(), kListBytes);
        if (!text.ok()) return text.status();
    }
    return ParseLsmList(*text);
}

void FillLandlock(ProbeReport& report) {
    long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0) {
        SetLandlockAbi(report, static_cast<int>(abi));
    } else {
        const Status none = ErrnoStatus(errno, "landlock_create_ruleset");
        Set(report, Feature::LANDLOCK, none);
        Set(report, Feature::LANDLOCK_TRUNCATE, none);
    }
    auto lsms = ReadLsms();
    if (!lsms.ok()) {
        Set(report, Feature::LANDLOCK_AFTER_BPF, Annotate(lsms.status(), "the LSM list is unknown"));
        return;
    }
    report.lsms = *std::move(lsms);
    auto at = [&](absl::string_view name) {
        return std::find(report.lsms.begin(), report.lsms.end(), name);
    };
    bool ordered = at("bpf") != report.lsms.end() && at("landlock") != report.lsms.end() &&
                   at("bpf") < at("landlock");
    report.at(Feature::LANDLOCK_AFTER_BPF) = {
        ordered, absl::StrCat("lsm=", absl::StrJoin(report.lsms, ","))};
}

void FillCapabilities(ProbeReport& report) {
    struct Row {
        int number;
        const char* name;
        bool by_sys_admin;  // the kernel takes CAP_SYS_ADMIN for it as well
    };
    constexpr Row kRows[] = {
        {CAP_BPF, "CAP_BPF", true},           {CAP_PERFMON, "CAP_PERFMON", true},
        {CAP_NET_ADMIN, "CAP_NET_ADMIN", false}, {CAP_SYS_PTRACE, "CAP_SYS_PTRACE", false},
        {CAP_KILL, "CAP_KILL", false},        {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false},
    };
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (syscall(SYS_capget, &header, data) != 0) {
        Set(report, Feature::CAPABILITIES, ErrnoStatus(errno, "capget"));
        return;
    }
    uint64_t effective = data[0].effective | static_cast<uint64_t>(data[1].effective) << 32;
    auto has = [&](int number) { return (effective >> number & 1) != 0; };
    for (const Row& row : kRows) {
        if (has(row.number) || (row.by_sys_admin && has(CAP_SYS_ADMIN))) continue;
        report.missing_caps.push_back(row.name);
    }
    report.at(Feature::CAPABILITIES) = {
        report.missing_caps.empty(),
        report.missing_caps.empty() ? ""
                                    : absl::StrCat("lacks ", absl::StrJoin(report.missing_caps, ", "))};
}

void FillCalls(ProbeReport& report) {
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    Set(report, Feature::PIDFD, pidfd.ok() ? absl::OkStatus() : ErrnoStatus(errno, "pidfd_open"));
    uint32_t action = SECCOMP_RET_ERRNO;
    bool seccomp = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
    Set(report, Feature::SECCOMP, seccomp ? absl::OkStatus() : ErrnoStatus(errno, "seccomp"));
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) report.memlock_bytes = limit.rlim_cur;
}

// A user namespace that maps one id, held by its descriptor; its first task is gone again.
StatusOr<Fd> MakeUserNamespace() {
    int ready[2];
    int done[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
    Fd ready_read(ready[0]), ready_write(ready[1]);
    if (pipe2(done, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
    Fd done_read(done[0]), done_write(done[1]);
    pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
        char byte = unshare(CLONE_NEWUSER) == 0 ? 0 : static_cast<char>(errno);
        if (write(ready_write.get(), &byte, 1) != 1) _exit(1);
        close(done_write.get());
        (void)!read(done_read.get(), &byte, 1);  // until the parent closes its end
        _exit(0);
    }
    ready_write.Reset();
    char byte = EPIPE;
    (void)!read(ready_read.get(), &byte, 1);  // a child that died leaves EPIPE in it
    auto open_namespace = [&]() -> StatusOr<Fd> {
        if (byte != 0) return ErrnoStatus(byte, "unshare a user namespace");
        std::string proc = absl::StrCat("/proc/", child);
        for (const char* map : {"/uid_map", "/gid_map"}) {
            SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(absl::StrCat(proc, map), O_WRONLY));
            SK_RETURN_IF_ERROR(WriteAll(file.get(), "0 0 1\n"));
        }
        return Fd::Open(absl::StrCat(proc, "/ns/user"), O_RDONLY);
    };
    StatusOr<Fd> result = open_namespace();
    done_write.Reset();
    (void)waitpid(child, nullptr, 0);
    return result;
}

Status TryIdmap(const std::string& dir) {
    SK_ASSIGN_OR_RETURN(Fd userns, MakeUserNamespace());
    Fd tree(static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, dir.c_str(),
                                     1 /* OPEN_TREE_CLONE */ | O_CLOEXEC)));
    if (!tree.ok()) return ErrnoStatus(errno, absl::StrCat("open_tree ", dir));
    struct {
        uint64_t set, clear, propagation, userns_fd;
    } attributes{0x00100000 /* MOUNT_ATTR_IDMAP */, 0, 0, static_cast<uint64_t>(userns.get())};
    if (syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes,
                sizeof(attributes)) != 0) {
        return ErrnoStatus(errno, absl::StrCat("mount_setattr ", dir));
    }
    return absl::OkStatus();
}

}  // namespace

void FillHost(const ProbeOptions& options, ProbeReport& report) {
    FillMounts(report);
    FillLandlock(report);
    FillCapabilities(report);
    FillCalls(report);
    Set(report, Feature::IDMAPPED_MOUNT, TryIdmap(options.idmap_dir));
}

}  // namespace stockade::kernel::probe
