#include "userspace/base/status.h"

#include "absl/strings/str_cat.h"

namespace stockade {

Status Annotate(const Status& status, absl::string_view tried) {
    if (status.ok()) return status;
    return Status(status.code(), absl::StrCat(tried, ": ", status.message()));
}

}  // namespace stockade
