// Compiled policies in the kernel: one frozen inner array for each different content, in the map of its size.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bpf/wire/policy.h"
#include "bpf/wire/slot.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::kernel {

// Shares by content and counts users. An index that nobody uses keeps its policy until it is
// wanted for another: publishing waits for a grace period of the kernel (some 10 ms), and the
// same few policies come again with every tool call.
//
// Taking an index over is safe at once: the update of the outer map returns after a grace period
// (maybe_wait_bpf_programs), so no verdict that read the old content is still being taken.
// Not thread-safe.
class PolicyMaps {
  public:
    // By enum sk_policy_size: maps of maps, of the caller's; must outlive this.
    using OuterFds = std::array<int, SK_POLICY_SIZES>;
    explicit PolicyMaps(const OuterFds& outer_fds) : outer_fds_(outer_fds) {}

    // kResourceExhausted when every index of the size is in use, kInvalidArgument for a malformed table.
    StatusOr<uint32_t> Acquire(std::span<const union sk_cell> cells);
    // Another user of an index that Acquire gave, or that an earlier agent had in use.
    void AddUser(uint32_t index) { users_[index]++; }
    Status Release(uint32_t index);

  private:
    StatusOr<uint32_t> FreeIndex(uint32_t size) const;

    OuterFds outer_fds_;
    std::map<std::string, uint32_t> index_of_;  // SHA-256 of the cells -> index
    std::map<uint32_t, int> users_;             // published index -> slots that use it
};

}  // namespace stockade::kernel
