// The first task moves into its own root and leaves the host's.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "userspace/launch/child.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// What container runtimes hide, for it tells of the host or of its kernel's addresses and keys.
constexpr const char* kMasked[] = {
    "/proc/kcore",       "/proc/keys",        "/proc/key-users", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/kmsg",      "/proc/kallsyms",      "/proc/kpagecount",
    "/proc/kpageflags",  "/proc/kpagecgroup", "/proc/modules",   "/proc/interrupts",    "/proc/vmallocinfo",
    "/proc/slabinfo",    "/proc/acpi",        "/proc/asound",    "/proc/scsi",          "/proc/sysvipc",
    "/proc/driver",      "/proc/pressure",
};
// Writable by mode bits to root only, which the sandbox is not; the mount says it once more.
constexpr const char* kReadOnly[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                     "/proc/sysrq-trigger"};

// Of this IPC namespace, before /proc/sys becomes read-only. What System V objects hold counts for
// no process: without the memory controller nothing else bounds it, and their defaults allow all of
// the machine's memory. And the first to go, when memory is short, is the sandbox: its own tasks
// cannot lower what root with CAP_SYS_RESOURCE has set.
struct Setting {
    const char* path;
    const char* value;
};
constexpr Setting kSettings[] = {
    {"/proc/self/oom_score_adj", "1000"},
    {"/proc/sys/kernel/shmmax", "67108864"},  // bytes of a segment
    {"/proc/sys/kernel/shmall", "65536"},     // pages in all: 256 MiB of 4 KiB
    {"/proc/sys/kernel/msgmni", "256"},       // queues, of 16 KiB each
    {"/proc/sys/kernel/sem", "250 32000 32 128"},
};

// Where the root is the initramfs, pivot_root refuses: it has no parent mount to hang from. An
// empty file system over it becomes the root first; the initramfs stays below, as on any machine
// that has booted from one, out of reach of a task whose root is another mount.
int LeaveInitramfs() {
    struct statfs fs;
    if (statfs("/", &fs) != 0) return -1;
    constexpr long kRamfsMagic = 0x858458f6, kTmpfsMagic = 0x01021994;
    if (fs.f_type != kRamfsMagic && fs.f_type != kTmpfsMagic) return 0;
    int context = SysFsopen("tmpfs", FSOPEN_CLOEXEC);
    if (context < 0) return -1;
    int mount_fd = -1;
    int rc = SysFsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
    if (rc == 0) mount_fd = SysFsmount(context, FSMOUNT_CLOEXEC, 0);
    if (mount_fd >= 0) rc = SysMoveMount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH);
    if (mount_fd >= 0 && rc == 0) rc = fchdir(mount_fd) == 0 && chroot(".") == 0 ? 0 : -1;
    int error = errno;
    close(context);
    if (mount_fd >= 0) close(mount_fd);
    errno = error;
    return mount_fd < 0 ? -1 : rc;
}

StepError MountProc(int root_fd) {
    int context = SysFsopen("proc", FSOPEN_CLOEXEC);
    if (context < 0) return {kProc, errno, 0};
    int mount_fd = -1;
    if (SysFsconfig(context, FSCONFIG_SET_STRING, "hidepid", "invisible", 0) == 0 &&
        SysFsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
        mount_fd =
            SysFsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    }
    int rc = mount_fd < 0 ? -1 : SysMoveMount(mount_fd, "", root_fd, "proc", MOVE_MOUNT_F_EMPTY_PATH);
    int error = errno;
    close(context);
    if (mount_fd >= 0) close(mount_fd);
    return rc == 0 ? StepError{} : StepError{kProc, error, 0};
}

}  // namespace

StepError Attach(int root_fd, const ChildMount& mount, size_t index) {
    // The target lies in our own root or in a bind of the caller's: no link of it leads out.
    int target =
        SysOpenat2(root_fd, mount.target, O_PATH | O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    if (target < 0) return {kAttachMount, errno, static_cast<int>(index)};
    int rc = SysMoveMount(mount.fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
    int error = errno;
    close(target);
    return rc == 0 ? StepError{} : StepError{kAttachMount, error, static_cast<int>(index)};
}

StepError EnterRoot(const ChildBase& base) {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return {kPrivateMounts, errno, 0};
    }
    if (LeaveInitramfs() != 0) return {kAttachRoot, errno, 1};
    if (SysMoveMount(base.root_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) != 0) {
        return {kAttachRoot, errno, 0};
    }
    StepError failed;
    for (size_t i = 0; i < base.mount_count; ++i) {
        if (failed = Attach(base.root_fd, base.mounts[i], i); !failed.ok()) return failed;
    }
    if (failed = MountProc(base.root_fd); !failed.ok()) return failed;
    // Old and new root at the same place: the old one ends up on top and is taken off.
    if (fchdir(base.root_fd) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) return {kPivot, errno, 0};
    if (umount2(".", MNT_DETACH) != 0) return {kDetachOld, errno, 0};
    if (chdir("/") != 0) return {kDetachOld, errno, 1};
    return {};
}

StepError LimitKernelMemory() {
    int index = 0;
    for (const Setting& row : kSettings) {
        ++index;
        int fd = open(row.path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) continue;  // a kernel without System V IPC
        ssize_t n = fd < 0 ? -1 : write(fd, row.value, strlen(row.value));
        int error = errno;
        if (fd >= 0) close(fd);
        if (n < 0) return {kKernelMemory, error, index};
    }
    return {};
}

StepError MaskProc() {
    int index = 0;
    for (const char* path : kMasked) {
        ++index;
        struct stat st;
        if (lstat(path, &st) != 0) continue;
        int rc = S_ISDIR(st.st_mode) ? mount("tmpfs", path, "tmpfs",
                                             MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=755")
                                     : mount("/dev/null", path, nullptr, MS_BIND, nullptr);
        if (rc != 0) return {kMask, errno, index};
    }
    for (const char* path : kReadOnly) {
        ++index;
        if (access(path, F_OK) != 0) continue;
        mount_attr attr{};
        attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
        if (mount(path, path, nullptr, MS_BIND, nullptr) != 0 ||
            SysMountSetattr(AT_FDCWD, path, 0, &attr) != 0) {
            return {kMask, errno, index};
        }
    }
    return {};
}

}  // namespace stockade::launch
