// Where a text ceases to be JSON (RFC 8259). protobuf's reader, which makes values of it, tells no place.
#pragma once

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// kInvalidArgument with "LINE:COLUMN: what was expected", both from 1.
Status CheckJsonSyntax(absl::string_view text);

}  // namespace stockade::launch
