// System calls that Debian 12's C library has no wrapper for, and constants newer than its
// headers. Plain functions without allocation: also used in the child between clone3 and execve.
#pragma once

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace stockade::launch {

// Numbers of the generic table, equal on all architectures we build for.
inline constexpr long kNrOpenTree = 428;
inline constexpr long kNrMoveMount = 429;
inline constexpr long kNrFsopen = 430;
inline constexpr long kNrFsconfig = 431;
inline constexpr long kNrFsmount = 432;
inline constexpr long kNrClone3 = 435;
inline constexpr long kNrCloseRange = 436;
inline constexpr long kNrOpenat2 = 437;
inline constexpr long kNrMountSetattr = 442;
inline constexpr long kNrLandlockCreate = 444;
inline constexpr long kNrLandlockAdd = 445;
inline constexpr long kNrLandlockRestrict = 446;

inline int SysOpenTree(int dir, const char* path, unsigned flags) {
    return static_cast<int>(syscall(kNrOpenTree, dir, path, flags));
}
inline int SysMoveMount(int from, const char* from_path, int to, const char* to_path, unsigned flags) {
    return static_cast<int>(syscall(kNrMoveMount, from, from_path, to, to_path, flags));
}
inline int SysFsopen(const char* type, unsigned flags) {
    return static_cast<int>(syscall(kNrFsopen, type, flags));
}
inline int SysFsconfig(int fd, unsigned command, const char* key, const char* value, int aux) {
    return static_cast<int>(syscall(kNrFsconfig, fd, command, key, value, aux));
}
inline int SysFsmount(int fd, unsigned flags, unsigned attributes) {
    return static_cast<int>(syscall(kNrFsmount, fd, flags, attributes));
}
inline int SysOpenat2(int dir, const char* path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    open_how how{};
    how.flags = flags;
    how.mode = mode;
    how.resolve = resolve;
    return static_cast<int>(syscall(kNrOpenat2, dir, path, &how, sizeof(how)));
}
inline int SysCloseRange(unsigned first, unsigned last, unsigned flags) {
    return static_cast<int>(syscall(kNrCloseRange, first, last, flags));
}
inline int SysMountSetattr(int dir, const char* path, unsigned flags, mount_attr* attr) {
    return static_cast<int>(syscall(kNrMountSetattr, dir, path, flags, attr, sizeof(*attr)));
}
inline long SysClone3(clone_args* args) { return syscall(kNrClone3, args, sizeof(*args)); }

}  // namespace stockade::launch
