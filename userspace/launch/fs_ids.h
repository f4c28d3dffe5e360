// The calling thread's file-system identity, lent by a caller while it lives: what the caller may
// not read or write, the thread then may not either.
#pragma once

#include <sys/types.h>

#include <vector>

namespace stockade::launch {

// Only the calling thread changes. Nothing changes for uid 0, which is the launcher's own.
class ScopedFsIds {
  public:
    ScopedFsIds(uid_t uid, gid_t gid);
    ~ScopedFsIds();
    ScopedFsIds(const ScopedFsIds&) = delete;
    ScopedFsIds& operator=(const ScopedFsIds&) = delete;

  private:
    bool active_ = false;
    std::vector<gid_t> groups_;
};

}  // namespace stockade::launch
