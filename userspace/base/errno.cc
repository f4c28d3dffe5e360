#include "userspace/base/errno.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace stockade {

Status ErrnoStatus(int error, absl::string_view tried) {
    const char* name = strerrorname_np(error);
    return Status(absl::ErrnoToStatusCode(error),
                  absl::StrCat(tried, ": ", strerrordesc_np(error) ? strerrordesc_np(error) : "?",
                               " (", name ? name : "unknown errno", ")"));
}

Status NegErrnoStatus(int result, absl::string_view tried) {
    if (result == 0) return absl::OkStatus();
    return ErrnoStatus(result < 0 ? -result : result, tried);
}

}  // namespace stockade
