// One line per message on standard error. Only pipeline and cmd log; other rooms return Status.
#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stockade {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Messages below `level` are dropped. Default kInfo. Safe to call from any thread.
void SetLogLevel(LogLevel level);
// Writes "<RFC 3339 time> <level> <message>\n" with one write(2); control bytes are escaped,
// so that a sandbox cannot forge a line.
void Log(LogLevel level, absl::string_view message);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
    Log(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
    Log(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
    Log(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace stockade
