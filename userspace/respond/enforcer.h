// What a response may ask of the kernel side. userspace/kernel's Sensor stands behind it.
#pragma once

#include <cstdint>

#include "userspace/base/status.h"

namespace stockade::respond {

class Enforcer {
  public:
    virtual ~Enforcer() = default;
    // From here on the kernel refuses the sandbox everything. `code` is an enum sk_code.
    // Condemning twice is no error; the first reason stays.
    virtual Status Condemn(uint32_t slot, uint32_t generation, uint32_t code) = 0;
};

}  // namespace stockade::respond
