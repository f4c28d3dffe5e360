// Changes by path: calls that return no object.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

int Truncate(Args args) { return Outcome(truncate(args[0], 0)); }
int Unlink(Args args) { return Outcome(syscall(SYS_unlinkat, AT_FDCWD, args[0], 0)); }
int Rmdir(Args args) { return Outcome(rmdir(args[0])); }
int RmdirAt(Args args) { return Outcome(syscall(SYS_unlinkat, AT_FDCWD, args[0], AT_REMOVEDIR)); }
int Mkdir(Args args) { return Outcome(syscall(SYS_mkdirat, AT_FDCWD, args[0], 0755)); }
int Mkfifo(Args args) { return Outcome(syscall(SYS_mknodat, AT_FDCWD, args[0], S_IFIFO | 0644, 0)); }
int Rename(Args args) { return Outcome(syscall(SYS_renameat2, AT_FDCWD, args[0], AT_FDCWD, args[1], 0)); }
int Exchange(Args args) { return Outcome(syscall(SYS_renameat2, AT_FDCWD, args[0], AT_FDCWD, args[1], RENAME_EXCHANGE)); }
int Link(Args args) { return Outcome(syscall(SYS_linkat, AT_FDCWD, args[0], AT_FDCWD, args[1], 0)); }
int Symlink(Args args) { return Outcome(syscall(SYS_symlinkat, args[0], AT_FDCWD, args[1])); }
int Chmod(Args args) { return Outcome(syscall(SYS_fchmodat, AT_FDCWD, args[0], 0600)); }
int Fchmod(Args args) {
    int fd = open(args[0], O_RDONLY);
    return fd < 0 ? Setup("open") : Outcome(fchmod(fd, 0600));
}
int Chown(Args args) { return Outcome(syscall(SYS_fchownat, AT_FDCWD, args[0], 1, 1, 0)); }
int Setxattr(Args args) { return Outcome(setxattr(args[0], "trusted.stockade", "x", 1, 0)); }
int Removexattr(Args args) { return Outcome(removexattr(args[0], "trusted.stockade")); }
int Utimes(Args args) {
    timespec times[2] = {{1, 0}, {1, 0}};
    return Outcome(syscall(SYS_utimensat, AT_FDCWD, args[0], times, 0));
}

// A file without a name gets one.
int LinkTmpfile(Args args) {
    int fd = open(args[0], O_RDWR | O_TMPFILE, 0600);
    if (fd < 0 || dup2(fd, 9) < 0) return Setup("open");
    return Outcome(linkat(AT_FDCWD, "/proc/self/fd/9", AT_FDCWD, args[1], AT_SYMLINK_FOLLOW));
}

#ifdef SYS_unlink
int UnlinkOld(Args args) { return Outcome(syscall(SYS_unlink, args[0])); }
int RenameOld(Args args) { return Outcome(syscall(SYS_rename, args[0], args[1])); }
int LinkOld(Args args) { return Outcome(syscall(SYS_link, args[0], args[1])); }
int SymlinkOld(Args args) { return Outcome(syscall(SYS_symlink, args[0], args[1])); }
int MkdirOld(Args args) { return Outcome(syscall(SYS_mkdir, args[0], 0755)); }
int ChmodOld(Args args) { return Outcome(syscall(SYS_chmod, args[0], 0600)); }
int ChownOld(Args args) { return Outcome(syscall(SYS_chown, args[0], 1, 1)); }
#endif

const Trigger kTriggers[] = {
    {"truncate", 1, "FILE", Truncate},
    {"unlink", 1, "FILE", Unlink},
    {"rmdir", 1, "DIR", Rmdir},
    {"rmdir_at", 1, "DIR", RmdirAt},
    {"mkdir", 1, "DIR", Mkdir},
    {"mkfifo", 1, "FILE", Mkfifo},
    {"rename", 2, "FROM TO", Rename},
    {"exchange", 2, "A B", Exchange},
    {"link", 2, "FROM TO", Link},
    {"link_tmpfile", 2, "DIR TO", LinkTmpfile},
    {"symlink", 2, "TARGET NAME", Symlink},
    {"chmod", 1, "FILE", Chmod},
    {"fchmod", 1, "FILE", Fchmod},
    {"chown", 1, "FILE", Chown},
    {"setxattr", 1, "FILE", Setxattr},
    {"removexattr", 1, "FILE", Removexattr},
    {"utimes", 1, "FILE", Utimes},
#ifdef SYS_unlink
    {"unlink_old", 1, "FILE", UnlinkOld},
    {"rename_old", 2, "FROM TO", RenameOld},
    {"link_old", 2, "FROM TO", LinkOld},
    {"symlink_old", 2, "TARGET NAME", SymlinkOld},
    {"mkdir_old", 1, "DIR", MkdirOld},
    {"chmod_old", 1, "FILE", ChmodOld},
    {"chown_old", 1, "FILE", ChownOld},
#endif
};

}  // namespace

std::span<const Trigger> PathTriggers() { return kTriggers; }

}  // namespace stockade::triggers
