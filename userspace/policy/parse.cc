#include "userspace/policy/parse.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/policy/parse_sections.h"

namespace stockade::policy {
namespace {

constexpr char kApiVersion[] = "stockade.dev/v1";
constexpr char kKind[] = "SandboxPolicy";
constexpr char kClusterKind[] = "ClusterSandboxPolicy";
// Between the name of a file and the place of an object in its list.
constexpr char kItemMark[] = ": items ";
// Bound of a Kubernetes label value: the name appears as one.
constexpr size_t kMaxNameChars = 63;

bool IsName(absl::string_view name) {
    if (name.empty() || name.size() > kMaxNameChars) return false;
    for (char c : name) {
        if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-' && c != '.') return false;
    }
    return absl::ascii_isalnum(name.front()) && absl::ascii_isalnum(name.back());
}

void ReadName(Reader& reader, const YamlNode& node, std::string& name, Position& at) {
    std::optional<std::string> text = reader.Text(node, "a policy's name");
    if (!text) return;
    if (!IsName(*text)) {
        return reader.Error(
            node,
            absl::StrCat("bad name '", Reader::Printable(*text),
                         "': at most 63 of a-z, 0-9, '-' and '.', with a letter or digit at both ends"));
    }
    name = *text;
    at = reader.At(node);
}

void ReadNamespace(Reader& reader, const YamlNode& node, std::string& name_space) {
    std::optional<std::string> text = reader.Text(node, "a namespace");
    if (!text) return;
    if (!IsName(*text) || absl::StrContains(*text, '.'))
        return reader.Error(node, absl::StrCat("bad namespace '", Reader::Printable(*text),
                                               "': at most 63 of a-z, 0-9 and '-'"));
    name_space = *text;
}

void ReadVersion(Reader& reader, const YamlNode& node) {
    (void)reader.Choice<int>(node, "apiVersion",
                             {{kApiVersion, 1}});  // one version: the error is all that matters
}

// The value of `kind`, before anything else is read; empty if it is not there.
std::string PeekKind(const YamlNode& document) {
    for (size_t i = 0; document.kind == YamlNode::Kind::kMap && i + 1 < document.items.size(); i += 2) {
        if (document.items[i]->value == "kind") return document.items[i + 1]->value;
    }
    return "";
}

void ReadPolicy(Reader& reader, const YamlNode& document, ParseResult& out) {
    SandboxPolicy policy;
    policy.at = reader.At(document);
    const bool of_cluster = PeekKind(document) == kClusterKind;
    const auto ignore = [](const YamlNode&) {};
    const auto read_metadata = [&](const YamlNode& v) {
        std::vector<Reader::Field> fields = {
            {"name", [&](const YamlNode& n) { ReadName(reader, n, policy.name, policy.at); }, true},
            {"namespace", [&](const YamlNode& n) {
                 if (of_cluster)
                     return reader.Error(n, absl::StrCat("a ", kClusterKind, " has no namespace"));
                 ReadNamespace(reader, n, policy.name_space);
             }}};
        // As an API server gives objects back.
        for (const char* key : {"annotations", "creationTimestamp", "generation", "labels", "managedFields",
                                "resourceVersion", "uid"})
            fields.push_back({key, ignore});
        reader.Map(v, "metadata", fields);
    };
    reader.Map(document, "a SandboxPolicy",
               {{"apiVersion", [&](const YamlNode& v) { ReadVersion(reader, v); }, true},
                {"kind", ignore, true},
                {"metadata", read_metadata, true},
                {"spec", [&](const YamlNode& v) { ReadSpec(reader, v, policy); }, true},
                {"status", ignore},
                {"tests", [&](const YamlNode& v) { ReadTests(reader, v, policy.tests); }}});
    if (!policy.name_space.empty() && !policy.name.empty())
        policy.name = QualifiedName(policy.name_space, policy.name);
    out.policies.push_back(std::move(policy));
}

void ReadPolicyTest(Reader& reader, const YamlNode& document, ParseResult& out) {
    PolicyTest test;
    const auto ignore = [](const YamlNode&) {};
    std::vector<Reader::Field> fields = {
        {"apiVersion", [&](const YamlNode& v) { ReadVersion(reader, v); }, true},
        {"kind", ignore, true},
        {"policy", [&](const YamlNode& v) { ReadName(reader, v, test.policy.text, test.policy.at); }, true}};
    for (Reader::Field& field : TestFields(reader, test.cases)) fields.push_back(std::move(field));
    reader.Map(document, "a SandboxPolicyTest", fields);
    out.tests.push_back(std::move(test));
}

void ReadDocument(Reader& reader, const YamlNode& document, ParseResult& out);

// Several objects as kubectl gives them, each a file of its own for what is said of its errors: they are of different people.
// A list in a list would be nobody's work.
void ReadList(Reader& reader, const YamlNode& document, ParseResult& out) {
    const auto ignore = [](const YamlNode&) {};
    const auto read_items = [&](const YamlNode& v) {
        if (v.kind != YamlNode::Kind::kSequence)
            return reader.Error(v, absl::StrCat("items must be a list, not ", KindName(v.kind)));
        for (size_t i = 0; i < v.items.size(); ++i) {
            const YamlNode& item = *v.items[i];
            if (PeekKind(item) == "List") return reader.Error(item, "a list cannot hold a list");
            Reader own(absl::StrCat(reader.At(item).file, kItemMark, i), out.diagnostics);
            ReadDocument(own, item, out);
        }
    };
    reader.Map(document, "a List",
               {{"apiVersion", ignore, true},
                {"kind", ignore, true},
                {"metadata", ignore},
                {"items", read_items, true}});
}

void ReadDocument(Reader& reader, const YamlNode& document, ParseResult& out) {
    if (document.kind == YamlNode::Kind::kNull) return;  // "---" at the end of a file
    if (document.kind != YamlNode::Kind::kMap) {
        return reader.Error(document,
                            absl::StrCat("a document must be a map, not ", KindName(document.kind)));
    }
    const std::string kind = PeekKind(document);
    if (kind == "SandboxPolicyTest") return ReadPolicyTest(reader, document, out);
    if (kind == "List") return ReadList(reader, document, out);
    if (kind != kKind && kind != kClusterKind && !kind.empty()) {
        return reader.Error(document,
                            absl::StrCat("unknown kind '", Reader::Printable(kind), "'",
                                         Suggest(kind, {kKind, kClusterKind, "SandboxPolicyTest"})));
    }
    ReadPolicy(reader, document, out);
}

void FindDuplicateNames(ParseResult& out) {
    std::map<std::string, Position> first;
    for (const SandboxPolicy& policy : out.policies) {
        if (policy.name.empty()) continue;
        auto [it, added] = first.emplace(policy.name, policy.at);
        if (added) continue;
        out.diagnostics.push_back(
            {Severity::kError, policy.at,
             absl::StrCat("duplicate policy name '", policy.name, "', first at ", ToString(it->second))});
    }
}

}  // namespace

absl::string_view FileOfItem(absl::string_view file) {
    const size_t mark = file.rfind(kItemMark);
    return mark == file.npos ? file : file.substr(0, mark);
}

ParseResult ParseFiles(const std::vector<SourceFile>& files) {
    ParseResult out;
    std::map<std::string, size_t> order;
    for (const SourceFile& file : files) {
        order.emplace(file.name, order.size());
        Reader reader(file.name, out.diagnostics);
        const size_t before = out.diagnostics.size();
        const std::vector<YamlPtr> documents = ReadYaml(file.name, file.text, out.diagnostics);
        for (const YamlPtr& document : documents) ReadDocument(reader, *document, out);
        const bool nothing = std::all_of(documents.begin(), documents.end(), [](const YamlPtr& document) {
            return document->kind == YamlNode::Kind::kNull;
        });
        if (nothing && out.diagnostics.size() == before) {
            out.diagnostics.push_back({Severity::kError, {file.name, 1, 1}, "no document in this file"});
        }
    }
    FindDuplicateNames(out);
    std::stable_sort(out.diagnostics.begin(), out.diagnostics.end(),
                     [&](const Diagnostic& a, const Diagnostic& b) {
                         return std::tuple(order[a.at.file], a.at.line, a.at.column) <
                                std::tuple(order[b.at.file], b.at.line, b.at.column);
                     });
    return out;
}

}  // namespace stockade::policy
