#include "userspace/launch/fs_ids.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace stockade::launch {

ScopedFsIds::ScopedFsIds(uid_t uid, gid_t gid) {
    if (uid == 0) return;
    active_ = true;
    int count = getgroups(0, nullptr);
    groups_.resize(count > 0 ? static_cast<size_t>(count) : 0);
    if (count > 0 && getgroups(count, groups_.data()) < 0) groups_.clear();
    // The raw call is of this thread; the C library's would change all. The caller's other groups
    // are not known here, so none count: less than the caller may, never more.
    (void)syscall(SYS_setgroups, 0, nullptr);
    setfsgid(gid);
    setfsuid(uid);  // last, for it drops the capabilities that the others need
}

ScopedFsIds::~ScopedFsIds() {
    if (!active_) return;
    setfsuid(0);
    setfsgid(0);
    (void)syscall(SYS_setgroups, groups_.size(), groups_.data());
}

}  // namespace stockade::launch
