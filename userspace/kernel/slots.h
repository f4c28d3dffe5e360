// Slots, labels and states: the identity side of the maps.
#pragma once

#include <cstdint>
#include <vector>

#include "userspace/kernel/programs.h"
#include "userspace/kernel/sensor.h"

namespace stockade::kernel {

// Not thread-safe. `programs` must outlive it.
class Slots {
  public:
    static StatusOr<Slots> Create(Programs* programs);  // not owned

    StatusOr<SlotRef> Bind(const Sensor::Binding& binding);
    Status Label(const SlotRef& ref, int pidfd);
    StatusOr<int> LabelPresent(const SlotRef& ref);
    Status SwapPolicy(const SlotRef& ref, uint32_t policy_index);
    Status Condemn(const SlotRef& ref, uint32_t code);
    StatusOr<sk_state> ReadState(const SlotRef& ref);
    StatusOr<sk_slot> ReadSlot(const SlotRef& ref);
    Status Free(const SlotRef& ref);
    std::vector<Sensor::LiveSlot> Live();
    uint32_t live_count() const { return live_; }

  private:
    explicit Slots(Programs* programs) : programs_(programs) {}
    Status WriteConfig();
    Status Call(const SlotRef& ref, uint32_t op, uint32_t argument);
    StatusOr<uint64_t> RootDentry(int pidfd);

    Programs* programs_;                  // not owned
    std::vector<uint32_t> generations_;   // by slot; the one in use, or the last
    std::vector<bool> used_;
    std::vector<int> level_users_;        // by cgroup level
    uint32_t live_ = 0;
    uint32_t next_ = 1;                   // round robin, so that a number rests before it comes again
};

}  // namespace stockade::kernel
