#include "userspace/kernel/bpffs.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::kernel {
namespace {

bool IsBpffs(const std::string& dir) {
    struct statfs info{};
    return statfs(dir.c_str(), &info) == 0 && info.f_type == BPF_FS_MAGIC;
}

// What is not there yet will be made below what is.
std::string Existing(std::string dir) {
    struct stat info{};
    while (stat(dir.c_str(), &info) != 0 && dir.find_last_of('/') != 0 && absl::StrContains(dir, '/')) {
        dir.resize(dir.find_last_of('/'));
    }
    return dir;
}

// Of agents that start together one mounts: a second mount would hide the pins of the first.
Status MountOnce(const std::string& dir) {
    SK_ASSIGN_OR_RETURN(const Fd below, Fd::Open(dir, O_RDONLY | O_DIRECTORY));
    if (flock(below.get(), LOCK_EX) != 0) return ErrnoStatus(errno, absl::StrCat("lock ", dir));
    if (IsBpffs(dir)) return absl::OkStatus();
    if (mount("bpf", dir.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=700") == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("mount a bpffs at ", dir));
}

}  // namespace

bool InHostMounts() {
    // Where the first process keeps to itself, kthreadd's are the same.
    struct stat mine{}, first{};
    if (stat("/proc/thread-self/ns/mnt", &mine) != 0) return false;
    if (stat("/proc/1/ns/mnt", &first) != 0 && stat("/proc/2/ns/mnt", &first) != 0) return false;
    return mine.st_ino == first.st_ino && mine.st_dev == first.st_dev;
}

Status EnsureBpffs(const std::string& pin_dir, const std::string& usual, bool host) {
    if (IsBpffs(Existing(pin_dir))) return absl::OkStatus();
    const bool ours = host && absl::StartsWith(pin_dir, usual + "/");
    if (ours) SK_RETURN_IF_ERROR(MountOnce(usual));
    if (ours && IsBpffs(Existing(pin_dir))) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("pin_dir ", pin_dir, " is not on a bpffs: keep it below ", usual,
                                                      ", and where nothing is mounted there: mount -t bpf bpf ", usual));
}

}  // namespace stockade::kernel
