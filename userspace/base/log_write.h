// Between log.cc and log_target.cc.
#pragma once

#include "absl/strings/string_view.h"

namespace stockade {

// `level` numbers LogLevel; the message is escaped already.
void WriteLogLine(int level, absl::string_view name, absl::string_view time, absl::string_view message);

}  // namespace stockade
