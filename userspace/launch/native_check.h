// What no host could serve, refused before anything is made.
#pragma once

#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::launch {

Status CheckSpec(const NativeSpec& spec);

}  // namespace stockade::launch
