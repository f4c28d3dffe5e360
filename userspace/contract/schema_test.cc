// rules/schema/toolcontract.schema.json against the parser: every object has the same keys, every closed list of words the same words.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"
#include "userspace/contract/json_value.h"
#include "userspace/contract/parse.h"

namespace stockade::contract {
namespace {

constexpr char kWrong[] = "qqqqqqqqqqqqqqqqqqqqqqqq";

JsonValue Schema() {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    const auto text = ReadFile(absl::StrCat(source == nullptr ? "." : source, "/rules/schema/toolcontract.schema.json"), 1 << 20);
    const auto value = ParseJsonValue(text.ok() ? *text : "", {.max_bytes = 1 << 20, .max_depth = 32});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *value : JsonValue();
}

// The node of a property: "spec", "spec.command"; what a $ref leads to.
JsonValue At(const JsonValue& root, const std::string& path) {
    JsonValue node = root;
    for (const absl::string_view step : absl::StrSplit(path, '.', absl::SkipEmpty())) {
        const JsonValue next = node.at("properties").at(std::string(step));
        node = next.contains("$ref") ? JsonValue(root.at("definitions").at(next["$ref"].get<std::string>().substr(14))) : next;
    }
    return node;
}

// What the parser says it knows, at the place of a word that it cannot know.
std::set<std::string> KnownTo(const std::string& document) {
    for (const policy::Diagnostic& diagnostic : Parse("t", document).diagnostics) {
        const std::vector<std::string> halves = absl::StrSplit(diagnostic.message, "; known here: ");
        if (halves.size() != 2 || halves[0].find(kWrong) == std::string::npos) continue;
        const std::vector<std::string> words = absl::StrSplit(halves[1], ", ");
        return {words.begin(), words.end()};
    }
    return {};
}

std::string Spec(const std::string& spec) { return absl::StrCat("apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: t}\nspec: ", spec, "\n"); }

TEST(ContractSchema, KeysOfEveryObject) {
    const JsonValue root = Schema();
    const std::string bad = absl::StrCat("{", kWrong, ": 1}");
    const std::pair<JsonValue, std::string> kObjects[] = {
        {root, absl::StrCat("kind: ToolContract\n", kWrong, ": 1\n")},
        {At(root, "metadata"), absl::StrCat("kind: ToolContract\nmetadata: ", bad, "\n")},
        {At(root, "spec"), Spec(bad)},
        {At(root, "spec.command"), Spec("{command: " + bad + "}")},
        {At(root, "spec.outputs"), Spec("{outputs: " + bad + "}")},
        {At(root, "spec.outputs.stdout"), Spec("{outputs: {stdout: " + bad + "}}")},
        {At(root, "spec.outputs.result"), Spec("{outputs: {result: " + bad + "}}")},
        {At(root, "spec.limits"), Spec("{limits: " + bad + "}")},
        {root["definitions"]["input"], Spec("{inputs: [" + bad + "]}")},
        {root["definitions"]["output"], Spec("{outputs: {files: [" + bad + "]}}")},
        {At(root, "spec.approval")["oneOf"][1], Spec("{approval: " + bad + "}")},
    };
    for (const auto& [node, document] : kObjects) {
        std::set<std::string> keys;
        for (const auto& [key, value] : node.at("properties").items()) keys.insert(key);
        EXPECT_EQ(keys, KnownTo(document)) << document;
        EXPECT_EQ(node.value("additionalProperties", JsonValue()), false) << document;
    }
}

TEST(ContractSchema, WordsOfEveryChoice) {
    const JsonValue root = Schema();
    const std::string w = kWrong;
    const std::pair<JsonValue, std::string> kChoices[] = {
        {At(root, "spec.class"), Spec("{class: " + w + "}")},
        {At(root, "spec.runtime"), Spec("{runtime: " + w + "}")},
        {At(root, "spec.require"), Spec("{require: " + w + "}")},
        {At(root, "spec.approval")["oneOf"][0], Spec("{approval: " + w + "}")},
    };
    for (const auto& [node, document] : kChoices) {
        std::set<std::string> words;
        for (const auto& word : node.at("enum")) words.insert(word.get<std::string>());
        EXPECT_EQ(words, KnownTo(document)) << document;
    }
}

}  // namespace
}  // namespace stockade::contract
