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
        check->add_flag("--strict");
        app_.add_subcommand("doctor", "");
        CLI::App* run = app_.add_subcommand("run", "");
        run->add_option("--result", text_);
        run->add_option("--policy,-p", text_);
        run->add_flag("--quiet,-q");
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
              "there is no command bogus; known here: policy, doctor, run (see stockade --help)");
    EXPECT_EQ(Check({"--config=x", "policy", "check", "anything"}), "");
    EXPECT_EQ(Check({}), "");
}

TEST_F(CommandWords, TheFirstWordIsKnownBehindFlagsWithValues) {
    EXPECT_TRUE(IsCommand(app_, "run", {"run", "ls"}));
    EXPECT_TRUE(IsCommand(app_, "run", {"--config", "x", "--config=y", "run", "--help"}));
    EXPECT_FALSE(IsCommand(app_, "run", {"--config", "run"}));
    EXPECT_FALSE(IsCommand(app_, "run", {"--help", "run"}));
    EXPECT_FALSE(IsCommand(app_, "run", {"--cnfig", "run"}));
    EXPECT_FALSE(IsCommand(app_, "run", {"help", "run"}));
    EXPECT_FALSE(IsCommand(app_, "run", {}));
}

TEST_F(CommandWords, AnUnknownFlagIsNamedWithTheNearest) {
    EXPECT_EQ(
        Complaint({"policy", "check", "--strct", "x"}),
        "policy check: unknown flag --strct; did you mean '--strict'? (see stockade policy check --help)");
    EXPECT_EQ(Complaint({"doctor", "now"}), "doctor: one word too many: now (see stockade doctor --help)");
    EXPECT_EQ(UnknownFlag(app_, "--zzzzzzzzz=x"), "unknown flag --zzzzzzzzz=x");
}

// A file that the sandbox's command is given must not be taken for ours.
TEST_F(CommandWords, ValuesAreFoundBesideWrongFlagsAndNotInTheCommand) {
    using Words = std::vector<std::string>;
    const auto values = [&](const Words& args, bool separated) {
        return ValuesOf(app_, "run", "--result", args, separated);
    };
    EXPECT_EQ(values({"run", "-p", "x", "--result", "r"}, true), Words{"r"});
    EXPECT_EQ(values({"--config", "run", "run", "-q", "--result=r"}, false), Words{"r"});
    EXPECT_EQ(values({"run", "--polcy", "x", "--result", "r"}, true), Words{"r"});
    EXPECT_EQ(values({"run", "--result", "r", "--polcy", "x", "--result", "s"}, false), Words{"r"});
    EXPECT_EQ(values({"run", "--result", "r", "--result", "s"}, true), (Words{"r", "s"}));
    EXPECT_EQ(values({"run", "-p", "x", "cc", "--result", "r"}, false), Words());
    EXPECT_EQ(values({"run", "-p", "x", "cc", "--result", "r"}, true), Words());
    EXPECT_EQ(values({"run", "--polcy", "x", "cc", "--result", "r"}, true), Words());
    EXPECT_EQ(values({"run", "-p", "--result", "r"}, true), Words());
    EXPECT_EQ(values({"doctor", "run", "--result", "r"}, false), Words());
    EXPECT_EQ(values({"run", "--result"}, false), Words());
    EXPECT_EQ(values({"--result", "r", "run"}, false), Words());
}

TEST_F(CommandWords, HelpIsAWordAndAnEmptyValueIsAValue) {
    using Words = std::vector<std::string>;
    EXPECT_EQ(Tidied(app_, {"help", "policy"}), (Words{"policy", "--help"}));
    EXPECT_EQ(Tidied(app_, {"--config", "help", "help"}), (Words{"--config", "help", "--help"}));
    EXPECT_EQ(Tidied(app_, {"doctor", "help"}), (Words{"doctor", "help"}));
    EXPECT_EQ(Tidied(app_, {"--config=", "doctor"}), (Words{"--config", "", "doctor"}));
    EXPECT_EQ(Tidied(app_, {"doctor", "cmd", "--x="}), (Words{"doctor", "cmd", "--x="}));
    EXPECT_EQ(Tidied(app_, {"policy", "check", "--x=y"}), (Words{"policy", "check", "--x=y"}));
}

}  // namespace
}  // namespace stockade::cmd
