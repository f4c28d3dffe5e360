// rules/schema/rule.schema.json against the parser: every object has the same keys, and every closed list of
// words the same words. JSON is YAML, so the rules' own reader reads it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"
#include "userspace/detect/parse.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::detect {
namespace {

using policy::YamlNode;
using Words = std::set<std::string>;

constexpr char kWrong[] = "qqqqqqqqqqqqqqqqqqqqqqqq";

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
        StatusOr<std::string> text =
            ReadFile(absl::StrCat(source == nullptr ? "." : source, "/rules/schema/rule.schema.json"),
                     policy::kMaxYamlBytes);
        ASSERT_TRUE(text.ok()) << text.status();
        std::vector<Diagnostic> diagnostics;
        documents_ = policy::ReadYaml("schema", *text, diagnostics);
        ASSERT_TRUE(diagnostics.empty()) << ToString(diagnostics[0]);
        ASSERT_EQ(documents_.size(), 1u);
    }

    const YamlNode* Properties(const std::string& definition) const {
        return Get(Get(Get(documents_[0].get(), "definitions"), definition), "properties");
    }
    Words KeysOf(const std::string& definition) const {
        Words keys;
        const YamlNode* node = Properties(definition);
        for (size_t i = 0; node != nullptr && i < node->items.size(); i += 2)
            keys.insert(node->items[i]->value);
        return keys;
    }
    Words EnumOf(const std::string& definition, const std::string& key) const {
        Words words;
        const YamlNode* node = Get(Get(Properties(definition), key), "enum");
        for (size_t i = 0; node != nullptr && i < node->items.size(); ++i)
            words.insert(node->items[i]->value);
        return words;
    }

    // What the parser says it knows, at the place of a word that it cannot know.
    static Words KnownTo(const std::string& document) {
        for (const Diagnostic& d : ParseRules({{"t", document}}).diagnostics) {
            const std::vector<std::string> halves = absl::StrSplit(d.message, "; known here: ");
            if (halves.size() != 2) continue;
            const std::vector<std::string> words = absl::StrSplit(halves[1], ", ");
            return {words.begin(), words.end()};
        }
        return {};
    }
    static std::string Base(const std::string& more) {
        return absl::StrCat(
            "title: t\nlogsource: {product: linux, category: process_creation}\n"
            "detection: {s: {Image: x}, condition: s}\n",
            more, "\n");
    }

    std::vector<policy::YamlPtr> documents_;
};

TEST_F(SchemaTest, KeysAreTheParsers) {
    const std::vector<std::string> top = TopLevelKeys();
    EXPECT_EQ(KeysOf("rule"), Words(top.begin(), top.end()));
    const std::string correlation =
        "title: t\ncorrelation: {type: event_count, rules: [x], timespan: 1s, condition: {gte: 1}";
    EXPECT_EQ(KeysOf("logsource"),
              KnownTo(absl::StrCat("title: t\nlogsource: {", kWrong, ": x}\ndetection: {}\n")));
    EXPECT_EQ(KeysOf("correlation"), KnownTo(absl::StrCat(correlation, ", ", kWrong, ": 1}\n")));
    EXPECT_EQ(KeysOf("threshold"),
              KnownTo(absl::StrCat(
                  "title: t\ncorrelation: {type: event_count, rules: [x], timespan: 1s, condition: {", kWrong,
                  ": 1}}\n")));
    EXPECT_EQ(KeysOf("response"), KnownTo(Base(absl::StrCat("response: {", kWrong, ": x}"))));
    EXPECT_EQ(KeysOf("deny"),
              KnownTo(Base(absl::StrCat("response: {action: deny, deny: {", kWrong, ": x}}"))));
    EXPECT_EQ(KeysOf("tests"), KnownTo(Base(absl::StrCat("tests: {", kWrong, ": []}"))));
    EXPECT_EQ(KeysOf("sample"),
              KnownTo(Base(absl::StrCat("tests: {fires: [{events: [], ", kWrong, ": 1}]}"))));
    EXPECT_EQ(
        KeysOf("expect"),
        KnownTo(Base(absl::StrCat("tests: {fires: [{event: {Image: x}, expect: {", kWrong, ": 1}}]}"))));
}

TEST_F(SchemaTest, WordsAreTheParsers) {
    const auto word = [](const std::string& more) { return KnownTo(Base(more)); };
    EXPECT_EQ(EnumOf("rule", "level"), word(absl::StrCat("level: ", kWrong)));
    EXPECT_EQ(EnumOf("rule", "status"), word(absl::StrCat("status: ", kWrong)));
    EXPECT_EQ(EnumOf("response", "action"), word(absl::StrCat("response: {action: ", kWrong, "}")));
    EXPECT_EQ(EnumOf("response", "once_per"),
              word(absl::StrCat("response: {action: alert, once_per: ", kWrong, "}")));
    EXPECT_EQ(EnumOf("response", "scope"),
              word(absl::StrCat("response: {action: alert, scope: ", kWrong, "}")));
    EXPECT_EQ(EnumOf("expect", "severity"),
              word(absl::StrCat("tests: {fires: [{event: {Image: x}, expect: {severity: ", kWrong, "}}]}")));
    EXPECT_EQ(EnumOf("correlation", "type"), KnownTo(absl::StrCat("title: t\ncorrelation: {type: ", kWrong,
                                                                  ", rules: [x], timespan: 1s}\n")));
    const std::vector<std::string> categories = Categories();
    EXPECT_EQ(EnumOf("logsource", "category"), Words(categories.begin(), categories.end()));
    EXPECT_EQ(EnumOf("event", "source"), Words(categories.begin(), categories.end()));
}

// The pattern of keys names exactly the modifiers that are taken.
TEST_F(SchemaTest, ModifiersAreTheParsers) {
    const YamlNode* patterns =
        Get(Get(Get(documents_[0].get(), "definitions"), "fields"), "patternProperties");
    ASSERT_NE(patterns, nullptr);
    std::string pattern = patterns->items[0]->value;
    pattern = pattern.substr(pattern.find("|(") + 2);
    const std::vector<std::string> listed = absl::StrSplit(pattern.substr(0, pattern.find(')')), '|');
    Words known = KnownTo(absl::StrCat(
        "title: t\nlogsource: {product: linux, category: process_creation}\ndetection: {s: {Image|", kWrong,
        ": x}, condition: s}\n"));
    EXPECT_EQ(known.erase("expand"), 1u);  // known, and refused
    EXPECT_EQ(Words(listed.begin(), listed.end()), known);
}

}  // namespace
}  // namespace stockade::detect
