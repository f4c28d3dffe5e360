// U-labels to A-labels (RFC 3492), for the suffix list: queries carry A-labels only.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// "公司.cn" -> "xn--55qx5d.cn". Labels that are ASCII stay as they are; nothing is mapped or
// normalised. kInvalidArgument for bytes that are no UTF-8 and for labels that become too long.
StatusOr<std::string> ToAscii(absl::string_view name);

}  // namespace stockade::dns
