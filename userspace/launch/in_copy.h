// A bounded copy of the caller's directory: for file systems that cannot be idmapped, and of listed files.
#pragma once

#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::launch {

// Copies regular files, directories and symlinks (as they are) below `source` to the empty tmpfs
// `target`, read as the caller, owned by the sandbox. Other kinds, and what the caller may not
// read, are left out. kResourceExhausted past spec.in_copy_max_bytes or 65,536 entries.
// With spec.in_listed only the files of the list: kFailedPrecondition where one is not what the list says.
Status CopyIn(int source, int target, const NativeSpec& spec);

}  // namespace stockade::launch
