#include "userspace/base/log_target.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/log_write.h"

namespace stockade {
namespace {

constexpr char kJournalSocket[] = "/run/systemd/journal/socket";
// Of a level, as syslog(3) numbers them: debug, informational, warning, error.
constexpr int kPriorities[] = {7, 6, 4, 3};

std::atomic<LogTarget> g_target{LogTarget::kText};
std::atomic<int> g_journal{-1};
std::atomic<const char*> g_identifier{"stockade"};

}  // namespace

std::string JournalRecord(int level, absl::string_view identifier, absl::string_view message) {
    // The message is one line: it has been escaped, so that no part of it can be taken for another field.
    return absl::StrCat("PRIORITY=", kPriorities[level], "\nSYSLOG_IDENTIFIER=", identifier,
                        "\nMESSAGE=", message, "\n");
}

std::string JsonLogLine(absl::string_view time, absl::string_view level, absl::string_view message) {
    std::string text = absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", level, "\",\"message\":\"");
    for (const char c : message) {
        if (c == '"' || c == '\\') {
            text.append({'\\', c});
        } else if (static_cast<unsigned char>(c) < 0x20) {
            absl::StrAppendFormat(&text, "\\u%04x", static_cast<unsigned>(c));
        } else {
            text.push_back(c);
        }
    }
    return absl::StrCat(text, "\"}\n");
}

bool StandardErrorIsJournal() {
    const char* stream = std::getenv("JOURNAL_STREAM");
    struct stat info{};
    if (stream == nullptr || fstat(STDERR_FILENO, &info) != 0) return false;
    return absl::StrCat(info.st_dev, ":", info.st_ino) == stream;
}

bool SetLogTarget(LogTarget target, const char* identifier) {
    g_identifier = identifier;
    if (target == LogTarget::kJournal && g_journal.load() < 0) {
        const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        std::strcpy(address.sun_path, kJournalSocket);
        if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
            if (fd >= 0) (void)close(fd);
            return false;
        }
        g_journal = fd;
    }
    g_target = target;
    return true;
}

void WriteLogLine(int level, absl::string_view name, absl::string_view time, absl::string_view message) {
    const LogTarget target = g_target.load(std::memory_order_relaxed);
    if (target == LogTarget::kJournal) {
        const std::string record = JournalRecord(level, g_identifier.load(), message);
        // A journal that is full or restarting must not stop who logs; then the line goes where it would have gone without it.
        if (send(g_journal.load(), record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
    }
    const std::string line = target == LogTarget::kJson ? JsonLogLine(time, name, message)
                                                        : absl::StrCat(time, " ", name, " ", message, "\n");
    // Standard error may be closed; a log line has nowhere else to go.
    (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace stockade
