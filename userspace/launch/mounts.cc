#include "userspace/launch/mounts.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// What the kernel wrote into the context's log, for the message.
std::string ContextLog(int context) {
    char text[512];
    ssize_t n = read(context, text, sizeof(text));
    return n > 2 ? absl::StrCat(" (", absl::string_view(text + 2, static_cast<size_t>(n) - 2), ")") : "";
}

// A user namespace that maps nothing but the two ids, as a descriptor. Its only task waits for
// the end of the pipe and is gone before this returns.
StatusOr<Fd> MakeUserNamespace(const std::string& uid_map, const std::string& gid_map) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    Fd read_end(ends[0]), write_end(ends[1]);
    clone_args args{};
    args.flags = CLONE_NEWUSER;
    args.exit_signal = SIGCHLD;
    long pid = SysClone3(&args);
    // Hosts switch them off (user.max_user_namespaces=0), and a chroot has none.
    if (pid < 0) return absl::UnimplementedError(ErrnoStatus(errno, "idmapped bind: clone a user namespace").message());
    if (pid == 0) {
        close(ends[1]);
        char byte;
        (void)!read(ends[0], &byte, 1);
        _exit(0);
    }
    auto fill = [&]() -> StatusOr<Fd> {
        std::string proc = absl::StrCat("/proc/", pid, "/");
        SK_ASSIGN_OR_RETURN(Fd uids, Fd::Open(proc + "uid_map", O_WRONLY));
        SK_RETURN_IF_ERROR(Annotate(WriteAll(uids.get(), uid_map), "uid_map"));
        SK_ASSIGN_OR_RETURN(Fd gids, Fd::Open(proc + "gid_map", O_WRONLY));
        SK_RETURN_IF_ERROR(Annotate(WriteAll(gids.get(), gid_map), "gid_map"));
        return Fd::Open(proc + "ns/user", O_RDONLY);
    };
    StatusOr<Fd> result = fill();
    write_end.Reset();
    while (waitpid(static_cast<pid_t>(pid), nullptr, 0) < 0 && errno == EINTR) {
    }
    return result;
}

}  // namespace

StatusOr<Fd> NewMount(const char* type, const MountOptions& options, uint64_t attributes) {
    Fd context(SysFsopen(type, FSOPEN_CLOEXEC));
    if (!context.ok()) return ErrnoStatus(errno, absl::StrCat("fsopen ", type));
    for (const auto& [key, value] : options) {
        int rc = value.empty()
                     ? SysFsconfig(context.get(), FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0)
                     : SysFsconfig(context.get(), FSCONFIG_SET_STRING, key.c_str(), value.c_str(), 0);
        if (rc != 0) {
            int error = errno;
            return ErrnoStatus(error,
                               absl::StrCat(type, " option ", key, "=", value, ContextLog(context.get())));
        }
    }
    if (SysFsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
        int error = errno;
        return ErrnoStatus(error, absl::StrCat("create ", type, ContextLog(context.get())));
    }
    Fd mount(SysFsmount(context.get(), FSMOUNT_CLOEXEC, static_cast<unsigned>(attributes)));
    if (!mount.ok()) return ErrnoStatus(errno, absl::StrCat("fsmount ", type));
    return mount;
}

StatusOr<Fd> NewTmpfs(uint64_t max_bytes, uint64_t max_inodes, const std::string& mode, uid_t uid, gid_t gid,
                      uint64_t attributes) {
    return NewMount("tmpfs",
                    {{"size", absl::StrCat(max_bytes)},
                     {"nr_inodes", absl::StrCat(max_inodes)},
                     {"mode", mode},
                     {"uid", absl::StrCat(uid)},
                     {"gid", absl::StrCat(gid)}},
                    attributes);
}

Status SetMountAttributes(const Fd& mount, bool recursive, uint64_t attributes) {
    mount_attr attr{};
    attr.attr_set = attributes;
    unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0u);
    if (SysMountSetattr(mount.get(), "", flags, &attr) != 0) return ErrnoStatus(errno, "mount_setattr");
    return absl::OkStatus();
}

StatusOr<Fd> CloneMount(int source, bool recursive, uint64_t attributes) {
    unsigned flags = AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                     (recursive ? static_cast<unsigned>(AT_RECURSIVE) : 0u);
    Fd mount(SysOpenTree(source, "", flags));
    if (!mount.ok()) return ErrnoStatus(errno, "open_tree");
    SK_RETURN_IF_ERROR(SetMountAttributes(mount, recursive, attributes));
    return mount;
}

StatusOr<Fd> CloneIdmapped(int source, uid_t from_uid, gid_t from_gid, uid_t to_uid, gid_t to_gid,
                           uint64_t attributes) {
    Fd mount(SysOpenTree(source, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    if (!mount.ok()) return ErrnoStatus(errno, "open_tree");
    SK_ASSIGN_OR_RETURN(Fd users, MakeUserNamespace(absl::StrCat(from_uid, " ", to_uid, " 1\n"),
                                                    absl::StrCat(from_gid, " ", to_gid, " 1\n")));
    mount_attr attr{};
    attr.attr_set = attributes | MOUNT_ATTR_IDMAP;
    attr.userns_fd = static_cast<uint64_t>(users.get());
    if (SysMountSetattr(mount.get(), "", AT_EMPTY_PATH, &attr) != 0) {
        return absl::UnimplementedError(
            absl::StrCat("idmapped bind: ", ErrnoStatus(errno, "mount_setattr").message()));
    }
    return mount;
}

}  // namespace stockade::launch
