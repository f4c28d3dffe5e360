#include "userspace/base/log.h"

#include <atomic>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "userspace/base/log_write.h"

namespace stockade {
namespace {
std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};
constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(static_cast<int>(level)); }

void Log(LogLevel level, absl::string_view message) {
    if (static_cast<int>(level) < g_level.load(std::memory_order_relaxed)) return;
    WriteLogLine(static_cast<int>(level), kNames[static_cast<int>(level)],
                 absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                 absl::Utf8SafeCHexEscape(message));
}

}  // namespace stockade
