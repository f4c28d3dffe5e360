#include "userspace/base/log_target.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace stockade {
namespace {

TEST(LogTarget, AJournalRecordHasItsLevelAsSyslogNumbersIt) {
    EXPECT_EQ(JournalRecord(1, "stockaded", "all well"),
              "PRIORITY=6\nSYSLOG_IDENTIFIER=stockaded\nMESSAGE=all well\n");
    EXPECT_EQ(JournalRecord(3, "stockaded", "x"), "PRIORITY=3\nSYSLOG_IDENTIFIER=stockaded\nMESSAGE=x\n");
}

TEST(LogTarget, AJsonLineStaysJsonWhateverTheMessage) {
    EXPECT_EQ(JsonLogLine("T", "info", "a \"b\" \\n\x01"),
              "{\"time\":\"T\",\"level\":\"info\",\"message\":\"a \\\"b\\\" \\\\n\\u0001\"}\n");
}

TEST(LogTarget, StandardErrorIsTheJournalOnlyWhereItIsTheStreamThatSystemdNamed) {
    struct stat info{};
    ASSERT_EQ(fstat(STDERR_FILENO, &info), 0);
    setenv("JOURNAL_STREAM", absl::StrCat(info.st_dev, ":", info.st_ino).c_str(), 1);
    EXPECT_TRUE(StandardErrorIsJournal());
    setenv("JOURNAL_STREAM", absl::StrCat(info.st_dev, ":", info.st_ino + 1).c_str(), 1);
    EXPECT_FALSE(StandardErrorIsJournal());
    unsetenv("JOURNAL_STREAM");
    EXPECT_FALSE(StandardErrorIsJournal());
}

}  // namespace
}  // namespace stockade
