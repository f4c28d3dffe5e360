#include "userspace/contract/parse.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/contract/quantity.h"
#include "userspace/contract/yaml_json.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

using policy::Reader;
using policy::YamlNode;

constexpr char kApiVersion[] = "stockade.dev/v1";
constexpr char kKind[] = "ToolContract";
// Bound of a Kubernetes label value: name and tool appear as one.
constexpr size_t kMaxNameChars = 63;
constexpr size_t kMaxDescriptionBytes = 4096;

bool IsName(absl::string_view name) {
    return !name.empty() && name.size() <= kMaxNameChars && absl::ascii_isalnum(name.front()) &&
           absl::ascii_isalnum(name.back()) && std::all_of(name.begin(), name.end(), [](char c) {
               return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
           });
}

void ReadName(Reader& reader, const YamlNode& node, absl::string_view what, std::string* out) {
    const std::optional<std::string> text = reader.Text(node, what);
    if (!text) return;
    if (!IsName(*text)) {
        return reader.Error(node, absl::StrCat("bad ", what, " '", Reader::Printable(*text),
                                               "': at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"));
    }
    *out = *text;
}

void ReadSize(Reader& reader, const YamlNode& node, absl::string_view what, uint64_t most, uint64_t* out) {
    const std::optional<std::string> text = reader.Text(node, what);
    if (!text) return;
    const StatusOr<uint64_t> size = ParseSize(*text);
    if (!size.ok() || *size > most) {
        return reader.Error(node, absl::StrCat(what, " takes a size of at most ", most, " bytes, such as 64KiB, not '", Reader::Printable(*text), "'"));
    }
    *out = *size;
}

void ReadTime(Reader& reader, const YamlNode& node, absl::string_view what, uint64_t* out, std::string* as_written = nullptr) {
    const std::optional<std::string> text = reader.Text(node, what);
    if (!text) return;
    const StatusOr<uint64_t> time = ParseTime(*text);
    if (!time.ok()) return reader.Error(node, absl::StrCat(what, " takes ", time.status().message()));
    *out = *time;
    if (as_written != nullptr) *as_written = *text;
}

bool CountRule(Reader& reader, const YamlNode& node, absl::string_view what, size_t so_far) {
    if (so_far < kMaxRules) return true;
    if (so_far == kMaxRules) reader.Error(node, absl::StrCat(what, ": over ", kMaxRules, " rows"));
    return false;
}

// "report/*.txt": below the directory, whatever the words.
void ReadFilePattern(Reader& reader, const YamlNode& node, FileRule* rule) {
    const std::optional<std::string> text = reader.Text(node, "path");
    if (!text) return;
    rule->text = *text;
    rule->at = reader.At(node);
    if (text->empty() || text->front() == '/')
        return reader.Error(node, "path is relative: what lies in /in or /out");
    for (const absl::string_view part : absl::StrSplit(*text, '/')) {
        if (part.empty() || part == "." || part == "..")
            return reader.Error(node, absl::StrCat("path has a component '", part, "'"));
    }
    StatusOr<policy::PathPattern> pattern = policy::ParsePattern("/" + *text);
    if (!pattern.ok()) return reader.Error(node, std::string(pattern.status().message()));
    rule->pattern = *std::move(pattern);
}

void ReadInput(Reader& reader, const YamlNode& node, ToolContract& out) {
    if (!CountRule(reader, node, "inputs", out.inputs.size())) return;
    FileRule rule;
    reader.Map(node, "an input",
               {{"path", [&](const YamlNode& v) { ReadFilePattern(reader, v, &rule); }, true},
                {"max_size", [&](const YamlNode& v) { ReadSize(reader, v, "max_size", kMaxFileBytes, &rule.max_bytes); }, true},
                {"max_files", [&](const YamlNode& v) { rule.max_files = static_cast<uint32_t>(reader.Number(v, "max_files", 1, kMaxOutputFiles).value_or(1)); }},
                {"optional", [&](const YamlNode& v) { rule.required = !reader.Choice<bool>(v, "optional", {{"true", true}, {"false", false}}).value_or(false); }}});
    out.inputs.push_back(std::move(rule));
}

void ReadOutput(Reader& reader, const YamlNode& node, ToolContract& out) {
    if (!CountRule(reader, node, "outputs.files", out.outputs.size())) return;
    FileRule rule;
    reader.Map(node, "an output",
               {{"path", [&](const YamlNode& v) { ReadFilePattern(reader, v, &rule); }, true},
                {"max_size", [&](const YamlNode& v) { ReadSize(reader, v, "max_size", kMaxFileBytes, &rule.max_bytes); }, true},
                {"max_files", [&](const YamlNode& v) { rule.max_files = static_cast<uint32_t>(reader.Number(v, "max_files", 1, kMaxOutputFiles).value_or(1)); }}});
    out.outputs.push_back(std::move(rule));
}

void ReadResultFile(Reader& reader, const YamlNode& node, ResultRule* rule) {
    const std::optional<std::string> text = reader.Text(node, "result.file");
    if (!text) return;
    if (text->empty() || text->size() > policy::kMaxNameBytes || absl::StrContains(*text, '/') || *text == "." || *text == "..")
        return reader.Error(node, "result.file is one name, directly in /out");
    rule->file = *text;
}

void ReadResult(Reader& reader, const YamlNode& node, ToolContract& out) {
    ResultRule rule;
    rule.at = reader.At(node);
    reader.Map(node, "outputs.result",
               {{"file", [&](const YamlNode& v) { ReadResultFile(reader, v, &rule); }, true},
                {"max_size", [&](const YamlNode& v) { ReadSize(reader, v, "max_size", kMaxResultBytes, &rule.max_bytes); }},
                {"max_depth", [&](const YamlNode& v) { rule.max_depth = static_cast<uint32_t>(reader.Number(v, "max_depth", 1, kMaxResultDepth).value_or(1)); }},
                {"schema", [&](const YamlNode& v) {
                     rule.schema = JsonOfYaml(v);
                     auto compiled = ResultSchema::Create(rule.schema);
                     if (!compiled.ok()) return reader.Error(v, absl::StrCat("schema: ", compiled.status().message()));
                     rule.compiled = *std::move(compiled);
                 }, true}});
    out.result = std::move(rule);
}

void ReadOutputs(Reader& reader, const YamlNode& node, ToolContract& out) {
    reader.Map(node, "outputs",
               {{"files", [&](const YamlNode& v) { reader.List(v, "outputs.files", [&](const YamlNode& n) { ReadOutput(reader, n, out); }); }},
                {"result", [&](const YamlNode& v) { ReadResult(reader, v, out); }},
                {"stdout", [&](const YamlNode& v) {
                     reader.Map(v, "outputs.stdout", {{"max_size", [&](const YamlNode& n) { ReadSize(reader, n, "max_size", kMaxFileBytes, &out.stdout_bytes); }, true}});
                 }}});
}

void ReadCommandPattern(Reader& reader, const YamlNode& node, ToolContract& out) {
    const std::optional<std::string> text = reader.Text(node, "a command");
    if (!text || !CountRule(reader, node, "command.allow", out.commands.size())) return;
    const StatusOr<policy::PathPattern> pattern = policy::ParsePattern(*text);
    if (!pattern.ok()) return reader.Error(node, std::string(pattern.status().message()));
    out.commands.push_back({*text, reader.At(node)});
}

void ReadDenied(Reader& reader, const YamlNode& node, ToolContract& out) {
    const std::optional<std::string> text = reader.Text(node, "a pattern of arguments");
    if (!text || !CountRule(reader, node, "command.deny_arguments", out.deny_arguments.size())) return;
    const re2::RE2 compiled(*text, re2::RE2::Quiet);
    if (!compiled.ok()) return reader.Error(node, absl::StrCat("bad pattern: ", Reader::Printable(compiled.error())));
    if (re2::RE2::PartialMatch("", compiled)) return reader.Error(node, "this pattern is found in every argument");
    out.deny_arguments.push_back({*text, reader.At(node)});
}

void ReadCommand(Reader& reader, const YamlNode& node, ToolContract& out) {
    reader.Map(node, "command",
               {{"allow", [&](const YamlNode& v) { reader.List(v, "command.allow", [&](const YamlNode& n) { ReadCommandPattern(reader, n, out); }); }, true},
                {"deny_arguments", [&](const YamlNode& v) { reader.List(v, "command.deny_arguments", [&](const YamlNode& n) { ReadDenied(reader, n, out); }); }}});
}

void ReadLimits(Reader& reader, const YamlNode& node, Limits* limits) {
    constexpr uint64_t kMost = uint64_t{1} << 40;
    reader.Map(node, "limits",
               {{"memory", [&](const YamlNode& v) { ReadSize(reader, v, "memory", kMost, &limits->memory_bytes); }},
                {"pids", [&](const YamlNode& v) { limits->pids = reader.Number(v, "pids", 1, 1 << 22).value_or(0); }},
                {"cpu_percent", [&](const YamlNode& v) { limits->cpu_percent = static_cast<uint32_t>(reader.Number(v, "cpu_percent", 1, 100'000).value_or(0)); }},
                {"out_size", [&](const YamlNode& v) { ReadSize(reader, v, "out_size", kMaxFileBytes, &limits->out_bytes); }}});
}

void ReadApproval(Reader& reader, const YamlNode& node, ToolContract& out) {
    if (node.kind == YamlNode::Kind::kScalar) {
        out.approval = reader.Choice<bool>(node, "approval", {{"none", false}, {"required", true}}).value_or(true);
        return;
    }
    out.approval = true;
    reader.Map(node, "approval", {{"timeout", [&](const YamlNode& v) { ReadTime(reader, v, "approval.timeout", &out.approval_timeout_ns); }, true}});
}

void ReadDescription(Reader& reader, const YamlNode& node, ToolContract& out) {
    const std::optional<std::string> text = reader.Text(node, "description");
    if (!text) return;
    if (text->size() > kMaxDescriptionBytes) return reader.Error(node, "description is over 4,096 bytes");
    out.description = *text;
}

void ReadSpec(Reader& reader, const YamlNode& node, ToolContract& out) {
    const size_t before = reader.found();
    reader.Map(node, "spec",
               {{"tool", [&](const YamlNode& v) { ReadName(reader, v, "tool", &out.tool); }},
                {"description", [&](const YamlNode& v) { ReadDescription(reader, v, out); }},
                {"class", [&](const YamlNode& v) { out.tool_class = reader.Choice<ToolClass>(v, "class", ToolClasses()).value_or(ToolClass::kSandbox); }, true},
                {"command", [&](const YamlNode& v) { ReadCommand(reader, v, out); }},
                {"policy", [&](const YamlNode& v) {
                     out.policy = reader.Text(v, "policy").value_or("");
                     out.policy_at = reader.At(v);
                 }},
                {"runtime", [&](const YamlNode& v) { out.runtime = reader.Choice<std::string>(v, "runtime", {{"native", "native"}, {"runc", "runc"}, {"runsc", "runsc"}, {"vm", "vm"}, {"kubernetes", "kubernetes"}}).value_or(""); }},
                {"require", [&](const YamlNode& v) { out.require = reader.Choice<std::string>(v, "require", {{"lsm", "lsm"}, {"signal", "signal"}}).value_or(""); }},
                {"inputs", [&](const YamlNode& v) { reader.List(v, "inputs", [&](const YamlNode& n) { ReadInput(reader, n, out); }); }},
                {"outputs", [&](const YamlNode& v) { ReadOutputs(reader, v, out); }},
                {"limits", [&](const YamlNode& v) { ReadLimits(reader, v, &out.limits); }},
                {"timeout", [&](const YamlNode& v) { ReadTime(reader, v, "timeout", &out.timeout_ns, &out.timeout); }},
                {"approval", [&](const YamlNode& v) { ReadApproval(reader, v, out); }}});
    if (reader.found() != before) return;
    if (out.tool_class == ToolClass::kInProcess) {
        if (!out.commands.empty() || !out.policy.empty() || !out.inputs.empty() || !out.outputs.empty() || !out.timeout.empty())
            reader.Error(node, "class in-process runs in the caller: command, policy, inputs, outputs.files and timeout would have no effect");
        return;
    }
    if (out.commands.empty()) reader.Error(node, "class sandbox needs command.allow: which programs may be started");
    if (out.policy.empty()) reader.Error(node, "class sandbox needs a policy: a name, or a file beside the contract");
    if (out.timeout.empty()) reader.Error(node, "class sandbox needs a timeout");
}

void ReadContract(Reader& reader, const YamlNode& document, Parsed& out) {
    ToolContract contract;
    contract.at = reader.At(document);
    reader.Map(document, "a ToolContract",
               {{"apiVersion", [&](const YamlNode& v) { (void)reader.Choice<int>(v, "apiVersion", {{kApiVersion, 1}}); }, true},
                {"kind", [&](const YamlNode& v) { (void)reader.Choice<int>(v, "kind", {{kKind, 1}}); }, true},
                {"metadata", [&](const YamlNode& v) {
                     reader.Map(v, "metadata", {{"name", [&](const YamlNode& n) { ReadName(reader, n, "name", &contract.name); }, true}});
                 }, true},
                {"spec", [&](const YamlNode& v) { ReadSpec(reader, v, contract); }, true}});
    if (contract.tool.empty()) contract.tool = contract.name;
    for (const ToolContract& other : out.contracts) {
        if (other.name == contract.name && !contract.name.empty())
            reader.Error(document, absl::StrCat("duplicate name '", contract.name, "', first at ", policy::ToString(other.at)));
    }
    out.contracts.push_back(std::move(contract));
}

}  // namespace

const std::vector<std::pair<std::string, ToolClass>>& ToolClasses() {
    static const auto* classes = new std::vector<std::pair<std::string, ToolClass>>{{"sandbox", ToolClass::kSandbox}, {"in-process", ToolClass::kInProcess}};
    return *classes;
}

Parsed Parse(const std::string& file, const std::string& text) {
    Parsed out;
    Reader reader(file, out.diagnostics);
    const std::vector<policy::YamlPtr> documents = policy::ReadYaml(file, text, out.diagnostics);
    for (const policy::YamlPtr& document : documents) {
        if (document->kind == YamlNode::Kind::kNull) continue;  // "---" at the end of a file
        ReadContract(reader, *document, out);
    }
    if (out.contracts.empty() && out.diagnostics.empty()) reader.ErrorAt({file, 0, 0}, "holds no ToolContract");
    std::stable_sort(out.diagnostics.begin(), out.diagnostics.end(), [](const policy::Diagnostic& a, const policy::Diagnostic& b) {
        return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
    });
    return out;
}

StatusOr<ToolContract> ParseOne(const std::string& file, const std::string& text) {
    Parsed parsed = Parse(file, text);
    std::string errors;
    for (const policy::Diagnostic& diagnostic : parsed.diagnostics) absl::StrAppend(&errors, errors.empty() ? "" : "\n", policy::ToString(diagnostic));
    if (!errors.empty()) return absl::InvalidArgumentError(errors);
    if (parsed.contracts.size() != 1)
        return absl::InvalidArgumentError(absl::StrCat(file, ": ", parsed.contracts.size(), " contracts in this file, and one is run"));
    return std::move(parsed.contracts.front());
}

}  // namespace stockade::contract
