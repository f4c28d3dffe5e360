#include "userspace/cmd/shared_flags.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace stockade::cmd {

SharedFlags::SharedFlags() {
    for (int fd = 0; fd < 3; ++fd) flags_[fd] = fcntl(fd, F_GETFL);
}

void SharedFlags::Restore() {
    for (int fd = 0; fd < 3; ++fd) {
        const int now = flags_[fd] < 0 ? -1 : fcntl(fd, F_GETFL);
        if (now < 0 || ((now ^ flags_[fd]) & O_NONBLOCK) == 0) continue;
        (void)fcntl(fd, F_SETFL, (now & ~O_NONBLOCK) | (flags_[fd] & O_NONBLOCK));
    }
}

bool SameStream(int a, int b) {
    struct stat first{}, second{};
    if (fstat(a, &first) != 0 || fstat(b, &second) != 0) return false;
    if (S_ISCHR(first.st_mode)) return false;
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace stockade::cmd
