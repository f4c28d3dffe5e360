#include "userspace/cmd/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EventFile : public ::testing::Test {
  protected:
    EventFile() {
        char name[] = "/tmp/event_file_test_XXXXXX";
        close(mkstemp(name));
        path_ = name;
    }
    ~EventFile() override { unlink(path_.c_str()); }
    Status Read(const std::string& text) {
        std::ofstream(path_) << text;
        return ReadEvents(path_, [&](v1::Event&& event) { kinds_.push_back(event.kind()); }, [&](const std::string& why) { bad_.push_back(why); });
    }
    std::string path_;
    std::vector<std::string> kinds_, bad_;
};

TEST_F(EventFile, IsReadLineByLine) {
    ASSERT_TRUE(Read("{\"kind\":\"a\"}\n\n  \n{\"kind\":\"b\"}").ok());
    EXPECT_THAT(kinds_, ElementsAre("a", "b"));
    EXPECT_THAT(bad_, IsEmpty());
}

TEST_F(EventFile, WhatIsNoEventIsToldWithItsPlaceAndTheRestIsRead) {
    const std::string hidden("{\"kind\":\"z\"}\0x", 14);
    ASSERT_TRUE(Read(absl::StrCat("{\n", std::string(kMaxEventLine + 5, 'x'), "\n", hidden, "\n{\"kind\":\"a\"}\n")).ok());
    EXPECT_THAT(kinds_, ElementsAre("a"));
    ASSERT_EQ(bad_.size(), 3u);
    EXPECT_THAT(bad_[0], HasSubstr(absl::StrCat(path_, ":1: ")));
    EXPECT_THAT(bad_[1], HasSubstr(":2: longer than any event is"));
    EXPECT_THAT(bad_[2], HasSubstr(":3: "));
}

TEST_F(EventFile, OneThatCannotBeReadIsAnError) {
    EXPECT_TRUE(Read("").ok());
    path_ += "-not-there";
    EXPECT_THAT(std::string(ReadEvents(path_, [](v1::Event&&) {}, [](const std::string&) {}).message()), HasSubstr("ENOENT"));
    EXPECT_FALSE(ReadEvents("/tmp", [](v1::Event&&) {}, [](const std::string&) {}).ok());
}

}  // namespace
}  // namespace stockade::cmd
