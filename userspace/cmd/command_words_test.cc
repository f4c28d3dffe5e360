#include "userspace/cmd/command_words.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace stockade::cmd {
namespace {

class CommandWords : public ::testing::Test {
  protected:
    void SetUp() override {
        app_.require_subcommand(1);
        app_.add_option("--config", text_, "");
        CLI::App* policy = app_.add_subcommand("policy", "");
        policy->require_subcommand(1);
        CLI::App* check = policy->add_subcommand("check", "");
        check->add_option("FILE", text_, "");
        check->add_flag("--strict", "");
        app_.add_subcommand("doctor", "");
    }
    std::string Check(const std::vector<std::string>& args) {
        return std::string(CheckCommandWords(app_, args).message());
    }
    std::string Complaint(std::vector<std::string> args) {
        std::reverse(args.begin(), args.end());  // as CLI11 takes them
        try {
            app_.parse(args);
        } catch (const CLI::ParseError& error) {
            return ParseComplaint(app_, error);
        }
        return "";
    }
    CLI::App app_{"", "stockade"};
    std::string text_;
};

TEST_F(CommandWords, AnUnknownCommandIsNamedWithTheNearest) {
    EXPECT_EQ(Check({"dcotor"}), "there is no command dcotor; did you mean 'doctor'? (see stockade --help)");
    EXPECT_EQ(Check({"--config", "dcotor", "policy", "chek", "x"}),
              "policy: there is no command chek; did you mean 'check'? (see stockade policy --help)");
    EXPECT_EQ(Check({"bogus"}),
              "there is no command bogus; known here: policy, doctor (see stockade --help)");
    EXPECT_EQ(Check({"--config=x", "policy", "check", "anything"}), "");
    EXPECT_EQ(Check({}), "");
}

TEST_F(CommandWords, AnUnknownFlagIsNamedWithTheNearest) {
    EXPECT_EQ(
        Complaint({"policy", "check", "--strct", "x"}),
        "policy check: unknown flag --strct; did you mean '--strict'? (see stockade policy check --help)");
    EXPECT_EQ(Complaint({"doctor", "now"}), "doctor: one word too many: now (see stockade doctor --help)");
    EXPECT_EQ(UnknownFlag(app_, "--zzzzzzzzz=x"), "unknown flag --zzzzzzzzz=x");
}

TEST_F(CommandWords, HelpIsAWord) {
    EXPECT_EQ(WithoutHelpWord({"help", "policy"}), (std::vector<std::string>{"policy", "--help"}));
    EXPECT_EQ(WithoutHelpWord({"help"}), std::vector<std::string>{"--help"});
    EXPECT_EQ(WithoutHelpWord({"run", "help"}), (std::vector<std::string>{"run", "help"}));
}

}  // namespace
}  // namespace stockade::cmd
