#include "userspace/policy/parse_sections.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {
namespace {

Reader::Field ViolationField(Reader& reader, std::optional<sk_verdict>& out) {
    return {"violation", [&](const YamlNode& v) { out = reader.Choice(v, "violation", ViolationChoices()); }};
}

Reader::Field PatternField(Reader& reader, std::string key, absl::string_view section,
                           std::vector<Entry>& out) {
    std::string what = absl::StrCat(section, ".", key);
    return {std::move(key), [&reader, &out, what](const YamlNode& v) { ReadPatterns(reader, v, what, out); }};
}

void ReadExec(Reader& reader, const YamlNode& node, ExecSection& out) {
    out.at = reader.At(node);
    reader.Map(node, "exec",
               {PatternField(reader, "allow", "exec", out.allow),
                PatternField(reader, "libraries", "exec", out.libraries),
                PatternField(reader, "deny", "exec", out.deny), ViolationField(reader, out.violation)});
}

void ReadFiles(Reader& reader, const YamlNode& node, FilesSection& out) {
    out.at = reader.At(node);
    reader.Map(
        node, "files",
        {PatternField(reader, "read", "files", out.read), PatternField(reader, "write", "files", out.write),
         PatternField(reader, "deny", "files", out.deny), ViolationField(reader, out.violation)});
}

void ReadEntries(Reader& reader, const YamlNode& node, absl::string_view what, std::vector<Entry>& out) {
    std::set<std::string> seen;
    reader.List(node, what, [&](const YamlNode& item) {
        std::optional<std::string> text = reader.Text(item, absl::StrCat("an entry of ", what));
        if (!text) return;
        if (!seen.insert(*text).second)
            return reader.Error(item,
                                absl::StrCat("'", Reader::Printable(*text), "' stands twice in ", what));
        out.push_back({*text, reader.At(item)});
    });
}

std::optional<uint32_t> ReadBudget(Reader& reader, const YamlNode& node) {
    const std::optional<std::string> text = reader.Text(node, "a budget");
    if (!text) return std::nullopt;
    const StatusOr<uint32_t> bytes = ParseDnsBudget(*text);
    if (bytes.ok()) return *bytes;
    reader.Error(node, Reader::Printable(bytes.status().message()));
    return std::nullopt;
}

void ReadDnsGrants(Reader& reader, const YamlNode& node, std::map<std::string, DnsGrant>& out) {
    reader.FreeMap(node, "dns.grants", [&](const YamlNode& key, const YamlNode& value) {
        if (!IsDnsZone(key.value)) {
            return reader.Error(key, absl::StrCat("bad zone '", Reader::Printable(key.value), "': a lower-case name of two to ",
                                                  SK_DNS_ZONE_LABELS, " labels, like example.com"));
        }
        if (const auto bytes = ReadBudget(reader, value)) out[key.value] = {*bytes, reader.At(key)};
    });
}

void ReadDns(Reader& reader, const YamlNode& node, DnsSection& out) {
    out.at = reader.At(node);
    const auto budget = [&](std::string key) -> Reader::Field {
        return {key, [&reader, &out, key](const YamlNode& v) {
                    if (const auto bytes = ReadBudget(reader, v)) out.budget[key] = *bytes;
                }};
    };
    const auto names = [&](const YamlNode& v) {
        ReadEntries(reader, v, "dns.allow", out.allow);
        for (const Entry& name : out.allow) {
            if (IsDnsName(name.text)) continue;
            reader.ErrorAt(name.at, absl::StrCat("bad name '", Reader::Printable(name.text),
                                                 "': a lower-case host name, or '*.' and one"));
        }
    };
    const auto resolvers = [&](const YamlNode& v) {
        ReadEntries(reader, v, "dns.resolvers", out.resolvers);
        for (const Entry& resolver : out.resolvers) {
            const StatusOr<NetworkRule> address = ParseCidr(resolver.text);
            if (address.ok() && !absl::StrContains(resolver.text, '/')) continue;
            reader.ErrorAt(resolver.at, absl::StrCat("bad resolver '", Reader::Printable(resolver.text),
                                                     "': an IP address, like 10.0.0.53"));
        }
    };
    reader.Map(
        node, "dns",
        {{"mode",
          [&](const YamlNode& v) {
              out.mode = reader.Choice<sk_dns_mode>(v, "dns mode",
                                                    {{"closed", SK_DNS_CLOSED},
                                                     {"allowlist", SK_DNS_ALLOWLIST},
                                                     {"open", SK_DNS_OPEN},
                                                     {"observe", SK_DNS_OBSERVE}});
          }},
         {"resolvers", resolvers},
         {"allow", names},
         {"budget",
          [&](const YamlNode& v) {
              reader.Map(v, "dns.budget", {budget("zone"), budget("ranked"), budget("total")});
          }},
         {"grants", [&](const YamlNode& v) { ReadDnsGrants(reader, v, out.grants); }},
         ViolationField(reader, out.violation)});
}

void ReadGrants(Reader& reader, const YamlNode& node, std::vector<Entry>& out) {
    static const std::vector<std::pair<std::string, int>> kGrants = {
#define X(bit, NAME, yaml) {yaml, bit},
        SK_GRANTS(X)
#undef X
    };
    std::set<std::string> seen;
    reader.List(node, "grants", [&](const YamlNode& item) {
        if (!reader.Choice(item, "grant", kGrants)) return;
        if (!seen.insert(item.value).second)
            return reader.Error(item, absl::StrCat("'", item.value, "' stands twice in grants"));
        out.push_back({item.value, reader.At(item)});
    });
}

void ReadRecord(Reader& reader, const YamlNode& node, SandboxPolicy& policy) {
    const auto field = [&](std::string key, int section) -> Reader::Field {
        return {key, [&reader, &policy, key, section](const YamlNode& v) {
                    policy.record[section] = reader.Choice<sk_record>(v, "record level",
                                                                      {{"violations", SK_RECORD_VIOLATIONS},
                                                                       {"first", SK_RECORD_FIRST},
                                                                       {"all", SK_RECORD_ALL}});
                }};
    };
    reader.Map(node, "record",
               {field("exec", SK_SECTION_EXEC), field("files", SK_SECTION_FILES),
                field("network", SK_SECTION_NETWORK), field("dns", SK_SECTION_DNS)});
}

void ReadSelector(Reader& reader, const YamlNode& node, SandboxPolicy& policy) {
    const auto labels = [&](const YamlNode& value) {
        reader.FreeMap(value, "matchLabels", [&](const YamlNode& key, const YamlNode& label) {
            std::optional<std::string> text =
                reader.Text(label, absl::StrCat("the label '", Reader::Printable(key.value), "'"));
            if (text) policy.match_labels[key.value] = *text;
        });
    };
    reader.Map(node, "selector", {{"matchLabels", labels, true}});
}

}  // namespace

const std::vector<std::pair<std::string, sk_verdict>>& ViolationChoices() {
    static const std::vector<std::pair<std::string, sk_verdict>> kChoices = {
        {"deny", SK_VERDICT_DENY},
        {"kill-process", SK_VERDICT_KILL_PROCESS},
        {"kill-sandbox", SK_VERDICT_KILL_SANDBOX}};
    return kChoices;
}

void ReadPatterns(Reader& reader, const YamlNode& node, absl::string_view what, std::vector<Entry>& out) {
    std::vector<Entry> entries;
    ReadEntries(reader, node, what, entries);
    for (Entry& entry : entries) {
        StatusOr<PathPattern> pattern = ParsePattern(entry.text);
        if (pattern.ok()) {
            out.push_back(std::move(entry));
            continue;
        }
        YamlNode at;
        at.line = entry.at.line;
        at.column = entry.at.column;
        reader.Error(at, Reader::Printable(pattern.status().message()));
    }
}

void ReadSpec(Reader& reader, const YamlNode& node, SandboxPolicy& policy) {
    const auto extends = [&](const YamlNode& v) {
        ReadEntries(reader, v, "extends", policy.extends.emplace());
    };
    const auto mode = [&](const YamlNode& v) {
        policy.mode =
            reader.Choice<sk_mode>(v, "mode", {{"enforce", SK_MODE_ENFORCE}, {"observe", SK_MODE_OBSERVE}});
    };
    const auto entered = [&](const YamlNode& v) {
        policy.entered = reader.Choice<sk_verdict>(
            v, "value of entered",
            {{"deny", SK_VERDICT_DENY}, {"observe", SK_VERDICT_OBSERVE}, {"enforce", SK_VERDICT_ALLOW}});
    };
    reader.Map(node, "spec",
               {{"extends", extends},
                {"selector", [&](const YamlNode& v) { ReadSelector(reader, v, policy); }},
                {"mode", mode},
                ViolationField(reader, policy.violation),
                {"exec", [&](const YamlNode& v) { ReadExec(reader, v, policy.exec.emplace()); }},
                {"files", [&](const YamlNode& v) { ReadFiles(reader, v, policy.files.emplace()); }},
                {"network", [&](const YamlNode& v) { ReadNetwork(reader, v, policy.network.emplace()); }},
                {"dns", [&](const YamlNode& v) { ReadDns(reader, v, policy.dns.emplace()); }},
                {"grants", [&](const YamlNode& v) { ReadGrants(reader, v, policy.grants); }},
                {"entered", entered},
                {"record", [&](const YamlNode& v) { ReadRecord(reader, v, policy); }}});
}

}  // namespace stockade::policy
