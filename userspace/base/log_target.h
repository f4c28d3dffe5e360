// Where log lines go, and in which form. Apart from log.h, as one place in a program chooses it, before its first thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stockade {

enum class LogTarget {
    kText,     // standard error: "<RFC 3339 time> <level> <message>"
    kJson,     // standard error: {"time":...,"level":...,"message":...}
    kJournal,  // journald, with PRIORITY and SYSLOG_IDENTIFIER as fields of their own
};

// False, and all as before, where kJournal has no journald to talk to. `identifier`: of this program; a literal.
bool SetLogTarget(LogTarget target, const char* identifier);
// Standard error goes to the journal already (systemd says so in JOURNAL_STREAM): then fields can be sent instead of lines.
bool StandardErrorIsJournal();

// One datagram of journald's native protocol (systemd's JOURNAL_NATIVE_PROTOCOL); for its test.
std::string JournalRecord(int level, absl::string_view identifier, absl::string_view message);
// One line of kJson; for its test.
std::string JsonLogLine(absl::string_view time, absl::string_view level, absl::string_view message);

}  // namespace stockade
