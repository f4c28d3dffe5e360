#include "userspace/cmd/run_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Document(const std::string& name, const std::string& spec) {
    return absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                        "}\nspec:\n  ", spec, "\n");
}

constexpr char kGood[] = "exec: {allow: [/usr/bin/true]}";
constexpr char kBrokenExec[] = "exek: {allow: [/usr/bin/true]}";

class PolicyStoreTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "sk-store-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        dir_ = name;
        store_.emplace(std::vector<std::string>{dir_}, "networkless");
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    void Write(const std::string& file, const std::string& text) { std::ofstream(dir_ + "/" + file) << text; }

    StatusOr<ChosenPolicy> ByName(const std::string& name) {
        api::PolicySource source;
        source.set_name(name);
        return store_->Choose(source, {});
    }
    StatusOr<ChosenPolicy> FromText(const std::string& text) {
        api::PolicySource source;
        source.set_filename("mine.yaml");
        source.set_text(text);
        return store_->Choose(source, {});
    }
    StatusOr<ChosenPolicy> ByTool(const std::string& tool) { return store_->Choose({}, {.tool = tool}); }

    // Refused, with the place of the error.
    void ExpectRefused(const StatusOr<ChosenPolicy>& chosen, const std::string& place) {
        ASSERT_FALSE(chosen.ok()) << chosen->policy.name << " was taken";
        EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(place));
    }

    std::string dir_;
    std::optional<PolicyStore> store_;
};

TEST_F(PolicyStoreTest, ANameIsFoundInTheDirectory) {
    Write("a.yaml", Document("tool", kGood));
    StatusOr<ChosenPolicy> chosen = ByName("tool");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_TRUE(chosen->policy.present[SK_SECTION_EXEC]);
}

TEST_F(PolicyStoreTest, ASectionWithAWrongNameRefusesThePolicy) {
    Write("a.yaml", Document("tool", kBrokenExec));
    ExpectRefused(ByName("tool"), dir_ + "/a.yaml:5:3: error: ");
}

TEST_F(PolicyStoreTest, ABadDenyPatternRefusesThePolicy) {
    Write("a.yaml", Document("tool", "files: {read: [/**], deny: ['relative/**']}"));
    ExpectRefused(ByName("tool"), dir_ + "/a.yaml:5:31: error: ");
}

TEST_F(PolicyStoreTest, OtherDocumentsOfTheFileAreRefusedOtherFilesAreNot) {
    Write("a.yaml", Document("first", kGood) + "---\n" + Document("second", kBrokenExec));
    Write("b.yaml", Document("third", kGood));
    ExpectRefused(ByName("first"), "/a.yaml:11:3");
    ExpectRefused(ByName("second"), "/a.yaml:11:3");
    EXPECT_TRUE(ByName("third").ok());
}

TEST_F(PolicyStoreTest, ABrokenBaseRefusesWhatExtendsIt) {
    Write("a.yaml", Document("below", kBrokenExec));
    Write("b.yaml", Document("middle", "extends: [below]"));
    Write("c.yaml", Document("top", absl::StrCat("extends: [middle]\n  ", kGood)));
    ExpectRefused(ByName("top"), dir_ + "/a.yaml:5:3");
    ExpectRefused(ByName("middle"), dir_ + "/b.yaml:5:13: error: extends 'below'");
}

TEST_F(PolicyStoreTest, TextThatExtendsABrokenBaseIsRefused) {
    Write("a.yaml", Document("below", kBrokenExec));
    ExpectRefused(FromText(Document("mine", absl::StrCat("extends: [below]\n  ", kGood))),
                  dir_ + "/a.yaml:5:3");
    ExpectRefused(FromText(Document("mine", kBrokenExec)), "mine.yaml:5:3");
    EXPECT_TRUE(FromText(Document("mine", kGood)).ok());
    // Its own documents come first.
    EXPECT_TRUE(FromText(Document("below", kGood)).ok());
}

TEST_F(PolicyStoreTest, ANameOfTwoFilesIsNeither) {
    Write("a.yaml", Document("tool", kGood));
    Write("b.yaml", Document("tool", "files: {read: [/**]}"));
    ExpectRefused(ByName("tool"), "duplicate policy name 'tool'");
}

TEST_F(PolicyStoreTest, ABuiltInNameWithAnotherMeaningIsNotTheBuiltIn) {
    Write("a.yaml", Document("networkless", "files: {read: []}"));
    ExpectRefused(ByName("networkless"), dir_ + "/a.yaml:3:");
    ExpectRefused(store_->Choose({}, {}), dir_ + "/a.yaml:3:");
}

TEST_F(PolicyStoreTest, ABrokenPolicyThatSelectsIsNotPassedOver) {
    Write("a.yaml", Document("tool", absl::StrCat("selector: {matchLabels: {tool: x}}\n  ", kBrokenExec)));
    ExpectRefused(ByTool("x"), dir_ + "/a.yaml:6:3");
}

TEST_F(PolicyStoreTest, ALabelThatABrokenFileMayHaveSelectedDoesNotFallToTheDefault) {
    Write("a.yaml", "spec: [");
    Write("b.yaml", Document("known", absl::StrCat("selector: {matchLabels: {tool: y}}\n  ", kGood)));
    ExpectRefused(ByTool("x"), dir_ + "/a.yaml:1:");
    EXPECT_TRUE(ByTool("y").ok());
    // Without a label nothing could have selected it.
    StatusOr<ChosenPolicy> plain = store_->Choose({}, {});
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(plain->policy.name, "networkless");
}

TEST_F(PolicyStoreTest, SeveralSelectorsAreAnError) {
    for (const char* name : {"one", "two"}) {
        Write(absl::StrCat(name, ".yaml"),
              Document(name, absl::StrCat("selector: {matchLabels: {tool: x}}\n  ", kGood)));
    }
    ExpectRefused(ByTool("x"), "(one, two)");
}

TEST_F(PolicyStoreTest, AnUnknownNameTellsTheFilesWithErrors) {
    Write("a.yaml", "spec: [");
    StatusOr<ChosenPolicy> chosen = ByName("tool");
    EXPECT_TRUE(absl::IsNotFound(chosen.status())) << chosen.status();
    EXPECT_THAT(
        std::string(chosen.status().message()),
        AllOf(HasSubstr("no policy tool in " + dir_ + " (a file is taken as well: --policy ./tool.yaml)"),
              HasSubstr("/a.yaml:1:")));
}

TEST_F(PolicyStoreTest, ACorrectedFileIsReadAgain) {
    Write("a.yaml", Document("tool", kBrokenExec));
    EXPECT_FALSE(ByName("tool").ok());
    Write("a.yaml", Document("tool", kGood) + "# corrected\n");
    StatusOr<ChosenPolicy> chosen = ByName("tool");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_THAT(chosen->note, Not(HasSubstr("error")));
}

}  // namespace
}  // namespace stockade::cmd
