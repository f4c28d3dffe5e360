// Events that were exported, read again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"

namespace stockade::cmd {

// Longer than any event is: the largest record of the kernel has 2 KiB of text, each byte of which may take six in JSON.
inline constexpr size_t kMaxEventLine = 1 << 20;

// Calls `each` for every line of JSON in the file, "-" = standard input. Lines that are no event go to `bad` with a reason that
// begins with PATH:LINE; empty lines to nobody.
Status ReadEvents(const std::string& path, const std::function<void(v1::Event&&)>& each, const std::function<void(const std::string&)>& bad);

}  // namespace stockade::cmd
