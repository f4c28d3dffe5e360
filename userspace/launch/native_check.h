// What no host could serve, refused before anything is made.
#pragma once

#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::launch {

// Of what the base takes from it; CheckSpec looks at this too.
Status CheckBase(const NativeSpec& base);
Status CheckSpec(const NativeSpec& spec);

}  // namespace stockade::launch
