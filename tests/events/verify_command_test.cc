// `stockade verify` as whoever was handed an export runs it.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "userspace/base/fd.h"
#include "userspace/model/json.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

using testing::HasSubstr;

struct Ran {
    int status;
    std::string text;
};

class VerifyCommandTest : public SpoolTest {
  protected:
    VerifyCommandTest() {
        auto spool = Open();
        for (uint64_t i = 1; i <= 5; ++i) {
            v1::Event event = Telemetry("sbx_1", i);
            EXPECT_TRUE(spool->Append(&event).ok());
        }
        v1::Sandbox sandbox;
        sandbox.set_id("sbx_1");
        EXPECT_TRUE(spool->Seal(sandbox).ok());
        EXPECT_TRUE(spool->Flush().ok());
        for (const v1::Event& event : Drain(*spool)) lines_.push_back(model::ToJsonLine(event));
    }
    Ran Run(const std::vector<std::string>& lines, const std::string& flags) {
        {
            std::ofstream file(root_ + "/events.jsonl");
            for (const std::string& line : lines) file << line << "\n";
        }
        return RunFile(root_ + "/events.jsonl", flags);
    }
    static Ran RunFile(const std::string& path, const std::string& flags) {
        FILE* pipe = popen(
            absl::StrCat(getenv("STOCKADE_BIN_DIR"), "/stockade verify ", path, " ", flags, " 2>&1").c_str(),
            "re");
        Ran ran{0, *ReadAll(fileno(pipe), 1 << 20)};
        ran.status = WEXITSTATUS(pclose(pipe));
        return ran;
    }
    std::vector<std::string> lines_;
};

TEST_F(VerifyCommandTest, SaysWhatIsWrongByStatusAndText) {
    const std::string key = "--key " + key_->public_hex();
    Ran ran = Run(lines_, key);
    EXPECT_EQ(ran.status, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("complete     n1 sbx_1: 6 events"));

    std::vector<std::string> lines = lines_;
    lines.pop_back();
    ran = Run(lines, key);
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("open         n1 sbx_1: 5 events"));

    lines = lines_;
    lines.erase(lines.begin() + 2);
    ran = Run(lines, key);
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("1 missing, first at 3"));

    lines = lines_;
    lines[1] = absl::StrCat(lines[1].substr(0, lines[1].find("xxx")), "yxx",
                            lines[1].substr(lines[1].find("xxx") + 3));
    ran = Run(lines, key);
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("that the chain does not fit, first at 2"));

    ran = Run(lines_, "--key " + std::string(64, 'a'));
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("a seal that is wrong"));
}

TEST_F(VerifyCommandTest, JsonHasTheSame) {
    lines_.erase(lines_.begin());
    const Ran ran = Run(lines_, "-o json");
    EXPECT_EQ(ran.status, 1);
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("\"exit_code\":1"), HasSubstr("\"state\":\"FAULTY\""),
                                         HasSubstr("\"missing\":1"), HasSubstr("\"sandbox\":\"sbx_1\""),
                                         HasSubstr("\"sealed\":true")));
}

TEST_F(VerifyCommandTest, WhatCannotBeReadIsToldApart) {
    Ran ran = Run({"nonsense", lines_[0]}, "");
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("events.jsonl:1: "), HasSubstr("1 lines are no events")));
    ran = Run({}, "");
    EXPECT_EQ(ran.status, 2) << "nothing is not everything";
    ran = RunFile("/nonexistent/file", "");
    EXPECT_EQ(ran.status, 125) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("/nonexistent/file"));
    EXPECT_EQ(Run(lines_, "--key abc").status, 125);
}

}  // namespace
}  // namespace stockade::pipeline
