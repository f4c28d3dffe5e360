#include "userspace/cmd/rule_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Rule(const std::string& name) {
    return absl::StrCat("title: Rule ", name, "\nname: ", name,
                        "\nlevel: low\nlogsource: {product: linux, category: file_access}\n"
                        "detection:\n  selection: {TargetFilename|endswith: /",
                        name, "}\n  condition: selection\n");
}

class RuleStore : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_rules_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        config_.dirs = {dir_ + "/shipped", dir_ + "/rules.d"};
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    void Put(const std::string& name, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(dir_ + "/" + name).parent_path());
        std::ofstream(dir_ + "/" + name) << text;
    }
    std::vector<std::string> Names(Broken broken = Broken::kGiveUp) {
        loaded_ = LoadRules(config_, broken);
        std::vector<std::string> names;
        for (const detect::Rule& rule : loaded_.rules) names.push_back(rule.name);
        return names;
    }
    std::string dir_;
    RulesConfig config_;
    LoadedRules loaded_;
};

TEST_F(RuleStore, WithoutDirectoriesThereAreNoRulesAndNoErrors) {
    EXPECT_THAT(Names(), IsEmpty());
    EXPECT_THAT(loaded_.errors, IsEmpty());
    EXPECT_EQ(RulesSignature(config_), "");
}

TEST_F(RuleStore, ALaterDirectoryReplacesAndTakesAwayByName) {
    Put("shipped/exec/a.yaml", Rule("a"));
    Put("shipped/exec/b.yaml", Rule("b"));
    Put("shipped/c.yaml", Rule("c"));
    Put("shipped/notes.txt", "no rule");
    EXPECT_THAT(Names(), ElementsAre("c", "a", "b"));
    Put("rules.d/exec/a.yaml", Rule("ours"));
    Put("rules.d/exec/b.yaml", "");
    Put("rules.d/d.yaml", Rule("d"));
    EXPECT_THAT(Names(), ElementsAre("c", "d", "ours"));
    EXPECT_EQ(loaded_.files, 3u);
    EXPECT_THAT(loaded_.errors, IsEmpty());
}

TEST_F(RuleStore, ABrokenFileKeepsTheOldSetOrIsLeftOut) {
    Put("shipped/a.yaml", Rule("a"));
    Put("shipped/b.yaml", "title: [\n");
    EXPECT_THAT(Names(Broken::kGiveUp), IsEmpty());
    ASSERT_THAT(loaded_.errors, testing::Not(IsEmpty()));
    EXPECT_THAT(loaded_.errors.front(), HasSubstr("b.yaml:"));
    EXPECT_THAT(Names(Broken::kLeaveOut), ElementsAre("a"));
    EXPECT_THAT(loaded_.errors, testing::Not(IsEmpty()));
}

// What rests on a rule that was left out goes with it.
TEST_F(RuleStore, ARuleOverABrokenOneIsLeftOutToo) {
    Put("shipped/a.yaml", Rule("a"));
    Put("shipped/b.yaml", Rule("b") + "tests: {fires: [{NoSuchField: x}]}\n");
    Put("shipped/c.yaml",
        "title: Many\nname: many\nlevel: low\ncorrelation: {type: event_count, rules: [b], group-by: "
        "[SandboxId], "
        "timespan: 10s, condition: {gte: 2}}\n");
    EXPECT_THAT(Names(Broken::kLeaveOut), ElementsAre("a"));
}

TEST_F(RuleStore, DisabledOnesAreKnownByIdOrNameAndUnknownWordsAreWarnedOf) {
    Put("shipped/a.yaml", Rule("a"));
    config_.disable = {"a", "nobody"};
    EXPECT_THAT(Names(), ElementsAre("a"));
    EXPECT_EQ(loaded_.disabled.count(loaded_.rules.front().hash), 1u);
    EXPECT_THAT(loaded_.warnings, testing::Contains(HasSubstr("'nobody'")));
}

TEST_F(RuleStore, TheSignatureFollowsTheFiles) {
    Put("shipped/a.yaml", Rule("a"));
    const std::string before = RulesSignature(config_);
    EXPECT_EQ(RulesSignature(config_), before);
    Put("rules.d/b.yaml", Rule("b"));
    const std::string more = RulesSignature(config_);
    EXPECT_NE(more, before);
    Put("rules.d/b.yaml", Rule("bb"));
    EXPECT_NE(RulesSignature(config_), more);
    std::filesystem::remove(dir_ + "/rules.d/b.yaml");
    EXPECT_EQ(RulesSignature(config_), before);
}

}  // namespace
}  // namespace stockade::cmd
