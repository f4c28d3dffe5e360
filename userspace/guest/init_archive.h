// What is in /out, told to the host: regular files and directories within the limits; the rest by name and reason.
#pragma once

#include "userspace/guest/guest_port.h"
#include "userspace/guest/out_store.h"

namespace stockade::guest {

// Nobody changes the tree any more. A directory that cannot be read is told as skipped. Errors are the port's.
Status ArchiveOut(int directory, const OutLimits& limits, GuestPort& port);

}  // namespace stockade::guest
