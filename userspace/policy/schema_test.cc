// rules/schema/sandboxpolicy.schema.json against the parser: every object has the same keys, and
// every closed list of words the same words. JSON is YAML, so our own reader reads it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::policy {
namespace {

const YamlNode* Get(const YamlNode* node, const std::string& key) {
    for (size_t i = 0; node != nullptr && node->kind == YamlNode::Kind::kMap && i + 1 < node->items.size();
         i += 2) {
        if (node->items[i]->value == key) return node->items[i + 1].get();
    }
    return nullptr;
}

class SchemaTest : public testing::Test {
  protected:
    void SetUp() override {
        const char* source = std::getenv("STOCKADE_SOURCE_DIR");
        if (source == nullptr) source = ".";
        StatusOr<std::string> text =
            ReadFile(absl::StrCat(source, "/rules/schema/sandboxpolicy.schema.json"), kMaxYamlBytes);
        ASSERT_TRUE(text.ok()) << text.status();
        std::vector<Diagnostic> diagnostics;
        documents_ = ReadYaml("schema", *text, diagnostics);
        ASSERT_TRUE(diagnostics.empty()) << ToString(diagnostics[0]);
        ASSERT_EQ(documents_.size(), 1u);
    }

    const YamlNode* Deref(const YamlNode* node) const {
        const YamlNode* ref = Get(node, "$ref");
        if (ref == nullptr) return node;
        return Deref(Get(Get(documents_[0].get(), "definitions"),
                         ref->value.substr(std::string("#/definitions/").size())));
    }

    // "definitions/spec, then properties exec": the node of a property.
    const YamlNode* At(const std::string& definition, const std::string& path) const {
        const YamlNode* node = Get(Get(documents_[0].get(), "definitions"), definition);
        for (absl::string_view step : absl::StrSplit(path, '.', absl::SkipEmpty()))
            node = Deref(Get(Get(node, "properties"), std::string(step)));
        return node;
    }

    static std::set<std::string> Words(const YamlNode* node, bool keys) {
        std::set<std::string> words;
        for (size_t i = 0; node != nullptr && i < node->items.size(); i += keys ? 2 : 1)
            words.insert(node->items[i]->value);
        return words;
    }

    // What the parser says it knows, at the place of a word that it cannot know.
    static std::set<std::string> KnownTo(const std::string& document) {
        for (const Diagnostic& d : ParseFiles({{"t", document}}).diagnostics) {
            const std::vector<std::string> halves = absl::StrSplit(d.message, "; known here: ");
            if (halves.size() != 2) continue;
            const std::vector<std::string> words = absl::StrSplit(halves[1], ", ");
            return {words.begin(), words.end()};
        }
        return {};
    }

    std::vector<YamlPtr> documents_;
};

constexpr char kWrong[] = "qqqqqqqqqqqqqqqqqqqqqqqq";

std::string Spec(const std::string& spec) {
    return absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec: ", spec,
                        "\n");
}

TEST_F(SchemaTest, KeysOfEveryObject) {
    const std::string bad = absl::StrCat("{", kWrong, ": 1}");
    const std::tuple<const char*, const char*, std::string> kObjects[] = {
        {"policy", "", absl::StrCat("kind: SandboxPolicy\n", kWrong, ": 1\n")},
        {"policy", "metadata", absl::StrCat("kind: SandboxPolicy\nmetadata: ", bad, "\n")},
        {"policy", "tests", Spec("{}") + "tests: " + bad},
        {"policyTest", "", absl::StrCat("kind: SandboxPolicyTest\n", kWrong, ": 1\n")},
        {"spec", "", Spec(bad)},
        {"spec", "selector", Spec("{selector: " + bad + "}")},
        {"spec", "exec", Spec("{exec: " + bad + "}")},
        {"spec", "files", Spec("{files: " + bad + "}")},
        {"spec", "network", Spec("{network: " + bad + "}")},
        {"spec", "dns", Spec("{dns: " + bad + "}")},
        {"spec", "dns.budget", Spec("{dns: {budget: " + bad + "}}")},
        {"spec", "record", Spec("{record: " + bad + "}")},
        {"networkRule", "", Spec("{network: {allow: [" + bad + "]}}")},
        {"addressRule", "", Spec("{network: {uids: {7: [" + bad + "]}}}")},
        {"testCase", "", Spec("{}") + "tests: {allow: [" + bad + "]}"},
    };
    for (const auto& [definition, path, document] : kObjects) {
        const YamlNode* node = At(definition, path);
        ASSERT_NE(node, nullptr) << definition << " " << path;
        EXPECT_EQ(Words(Get(node, "properties"), true), KnownTo(document)) << definition << " " << path;
        const YamlNode* closed = Get(node, "additionalProperties");
        EXPECT_TRUE(closed != nullptr && closed->value == "false")
            << definition << " " << path << " must be closed";
    }
}

TEST_F(SchemaTest, WordsOfEveryChoice) {
    const std::string w = kWrong;
    const std::pair<const YamlNode*, std::string> kChoices[] = {
        {At("spec", "mode"), Spec("{mode: " + w + "}")},
        {At("spec", "violation"), Spec("{violation: " + w + "}")},
        {At("spec", "exec.violation"), Spec("{exec: {violation: " + w + "}}")},
        {At("spec", "entered"), Spec("{entered: " + w + "}")},
        {At("spec", "dns.mode"), Spec("{dns: {mode: " + w + "}}")},
        {At("spec", "record.files"), Spec("{record: {files: " + w + "}}")},
        {Get(At("spec", "grants"), "items"), Spec("{grants: [" + w + "]}")},
    };
    for (const auto& [node, document] : kChoices) {
        const std::set<std::string> words = Words(Get(node, "enum"), false);
        EXPECT_FALSE(words.empty()) << document;
        EXPECT_EQ(words, KnownTo(document)) << document;
    }
}

}  // namespace
}  // namespace stockade::policy
