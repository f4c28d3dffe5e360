#include "userspace/contract/mcp.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/contract/json_value.h"
#include "userspace/contract/result_schema.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

using policy::Reader;

constexpr JsonBounds kBounds = {.max_bytes = kMaxToolListBytes, .max_depth = 64};
constexpr size_t kMaxTools = 1000;
constexpr size_t kMaxNameBytes = 63;  // of a contract

// Parts of names that stand for something outside of the function.
constexpr absl::string_view kOutside[] = {"exec", "run", "shell", "command", "cmd", "code", "script", "eval", "path", "file", "dir", "folder",
                                          "url", "uri", "host", "address", "http", "fetch", "download", "upload", "install", "package",
                                          "browse", "write", "delete", "sql", "query", "repo", "branch", "image", "template"};

std::string OutsideWord(const std::string& name) {
    const std::string lower = absl::AsciiStrToLower(name);
    for (const absl::string_view word : kOutside) {
        if (absl::StrContains(lower, word)) return std::string(word);
    }
    return "";
}

// Why it has to be sandboxed; empty = it may run in its caller.
std::string WhySandbox(const std::string& name, const JsonValue& tool) {
    const JsonValue annotations = tool.value("annotations", JsonValue::object());
    if (!annotations.is_object() || annotations.value("readOnlyHint", JsonValue()) != true) return "it does not say that it only reads (readOnlyHint)";
    if (annotations.value("openWorldHint", JsonValue()) != false) return "it does not say that it reaches nothing outside (openWorldHint: false)";
    if (const std::string word = OutsideWord(name); !word.empty()) return absl::StrCat("its name has '", word, "' in it");
    const JsonValue schema = tool.value("inputSchema", JsonValue());
    if (!schema.is_object() || !schema.contains("properties")) return "it does not say what it takes (inputSchema)";
    const JsonValue& properties = schema["properties"];
    if (!properties.is_object()) return "its inputSchema is none";
    for (const auto& [key, value] : properties.items()) {
        if (const std::string word = OutsideWord(key); !word.empty()) return absl::StrCat("its argument ", Reader::Printable(key), " has '", word, "' in it");
    }
    return "";
}

std::string ContractName(const std::string& tool, std::set<std::string>& taken) {
    std::string name;
    for (const char c : tool.substr(0, kMaxNameBytes - 4)) name.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ? c : '-');
    while (!name.empty() && !absl::ascii_isalnum(static_cast<unsigned char>(name.front()))) name.erase(0, 1);
    while (!name.empty() && !absl::ascii_isalnum(static_cast<unsigned char>(name.back()))) name.pop_back();
    if (name.empty()) name = "tool";
    std::string unique = name;
    for (int i = 2; !taken.insert(unique).second; ++i) unique = absl::StrCat(name, "-", i);
    return unique;
}

std::string ResultOf(const JsonValue& tool, std::string* comment) {
    const JsonValue schema = tool.value("outputSchema", JsonValue());
    if (schema.is_null()) return "";
    const StatusOr<std::shared_ptr<const ResultSchema>> taken = ResultSchema::Create(schema.dump());
    if (!taken.ok()) {
        *comment = absl::StrCat("  # its outputSchema is not taken: ", Reader::Printable(taken.status().message()), "\n");
        return "";
    }
    return absl::StrCat("  outputs:\n    result: {file: result.json, max_size: 64KiB, schema: ", schema.dump(), "}\n");
}

void AddSandboxed(const std::string& why, const JsonValue& tool, std::string* out) {
    std::string comment;
    const std::string result = ResultOf(tool, &comment);
    absl::StrAppend(out, "  class: sandbox                          # ", why, "\n",
                    "  command: {allow: [/usr/bin/python3*]}   # TO DECIDE: the program that does it\n"
                    "  policy: networkless                     # TO DECIDE: what it may reach\n"
                    "  timeout: 30s\n",
                    comment, result);
    const JsonValue annotations = tool.value("annotations", JsonValue::object());
    const bool destructive = !annotations.is_object() || annotations.value("destructiveHint", JsonValue(true)) != false;
    absl::StrAppend(out, "  approval: ", destructive ? "required                      # it does not say that it destroys nothing (destructiveHint: false)\n" : "none\n");
}

}  // namespace

StatusOr<FirstContracts> ContractsFromMcp(const std::string& json) {
    StatusOr<JsonValue> root = ParseJsonValue(json, kBounds);
    if (!root.ok()) return root.status();
    // The answer as it came ({"jsonrpc":...,"result":{"tools":[...]}}), its result, or the list.
    JsonValue list = *std::move(root);
    if (list.is_object() && list.contains("result")) list = JsonValue(list["result"]);
    if (list.is_object() && list.contains("tools")) list = JsonValue(list["tools"]);
    if (!list.is_array()) return absl::InvalidArgumentError("no list of tools: {\"tools\": [...]} is expected");
    if (list.size() > kMaxTools) return absl::InvalidArgumentError(absl::StrCat("over ", kMaxTools, " tools"));
    FirstContracts out;
    std::set<std::string> taken;
    for (const JsonValue& tool : list) {
        if (!tool.is_object() || !tool.value("name", JsonValue()).is_string()) return absl::InvalidArgumentError("a tool without a name");
        const std::string name = tool["name"].get<std::string>();
        const JsonValue description = tool.value("description", JsonValue(""));
        const std::string contract = ContractName(name, taken);
        const std::string why = WhySandbox(name, tool);
        absl::StrAppend(&out.yaml, out.yaml.empty() ? "" : "---\n", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: ", QuotedText(contract), "}\nspec:\n  tool: ", QuotedText(contract), "\n");
        if (contract != name) absl::StrAppend(&out.yaml, "  # called ", Reader::Printable(name), " by its server\n");
        if (description.is_string() && !description.get<std::string>().empty()) absl::StrAppend(&out.yaml, "  description: ", QuotedText(description.get<std::string>().substr(0, 1000)), "\n");
        if (why.empty()) {
            ++out.in_process;
            absl::StrAppend(&out.yaml, "  class: in-process                       # by its own word alone: readOnlyHint, no openWorldHint. TO DECIDE\n");
            continue;
        }
        ++out.sandboxed;
        AddSandboxed(why, tool, &out.yaml);
    }
    return out;
}

}  // namespace stockade::contract
