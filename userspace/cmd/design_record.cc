#include "userspace/cmd/design_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "bpf/wire/policy.h"
#include "userspace/cmd/json.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

constexpr std::pair<int, const char*> kGrants[] = {
#define X(bit, NAME, yaml) {bit, yaml},
    SK_GRANTS(X)
#undef X
};

// Rules of one list that a line has room for.
constexpr size_t kMaxListed = 12;

std::string Listed(std::vector<std::string> items, absl::string_view none) {
    if (items.empty()) return std::string(none);
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    const size_t more = items.size() > kMaxListed ? items.size() - kMaxListed : 0;
    items.resize(items.size() - more);
    return absl::StrCat(absl::StrJoin(items, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::string RuleText(const policy::NetworkRule& rule) {
    const std::string ports = absl::StrJoin(rule.ports, "/", [](std::string* out, const policy::PortRange& range) {
        absl::StrAppend(out, range.first, range.last != range.first ? absl::StrCat("-", range.last) : "");
    });
    return absl::StrCat(rule.kind == policy::NetworkKind::kUnix ? "unix " : "", rule.text, ports.empty() ? "" : absl::StrCat(":", ports));
}

// Base's own rules say what every program needs, and nothing of this one.
std::vector<std::string> Paths(const policy::ResolvedPolicy& policy, absl::string_view list) {
    std::vector<std::string> out;
    for (const policy::PathRule& rule : policy.paths) {
        if (rule.list == list && rule.policy != "base") out.push_back(rule.pattern);
    }
    return out;
}

std::string Workload(const RecordFacts& facts) {
    if (!facts.command.empty()) return facts.command;
    if (facts.contract != nullptr) {
        std::vector<std::string> commands;
        for (const policy::Entry& entry : facts.contract->commands) commands.push_back(entry.text);
        return absl::StrCat(facts.contract->tool, ": ", Listed(commands, "nothing"));
    }
    return Listed(Paths(*facts.policy, "exec.allow"), facts.policy->present[SK_SECTION_EXEC] ? "nothing" : "any program (no exec section)");
}

std::string ExternalPath(const policy::ResolvedPolicy& policy) {
    if (!policy.present[SK_SECTION_NETWORK]) return "no route out; connections inside are not judged (no network section)";
    std::vector<std::string> rules;
    for (const policy::NetworkRule& rule : policy.network) rules.push_back(RuleText(rule));
    for (const auto& [uid, list] : policy.uids) {
        for (const policy::NetworkRule& rule : list) rules.push_back(absl::StrCat("uid ", uid, ": ", RuleText(rule)));
    }
    for (const policy::PortEntry& port : policy.host) rules.push_back(absl::StrCat("host loopback:", port.ports.first));
    if (policy.dns) {
        for (const policy::Entry& name : policy.dns->allow) rules.push_back(absl::StrCat("name ", name.text));
    }
    return Listed(rules, "none: every connection is refused");
}

std::string Credentials(const policy::ResolvedPolicy& policy) {
    std::vector<std::string> grants;
    for (const auto& [bit, name] : kGrants) {
        if ((policy.grants >> bit & 1) != 0) grants.emplace_back(name);
    }
    return absl::StrCat("none handed in: no variable of the caller but locale and terminal; refused paths: ", Listed(Paths(policy, "files.deny"), "those of no rule"), "; grants: ", Listed(grants, "none"));
}

std::string Writable(const RecordFacts& facts) {
    std::string text = facts.policy->present[SK_SECTION_FILES] ? Listed(Paths(*facts.policy, "files.write"), "nothing") : "whatever its uid may (no files section)";
    if (facts.contract == nullptr) return absl::StrCat(text, "; of /out regular files are handed over");
    std::vector<std::string> files;
    for (const contract::FileRule& rule : facts.contract->outputs) files.push_back(rule.text);
    if (facts.contract->result.has_value()) files.push_back(absl::StrCat(facts.contract->result->file, " (by its schema)"));
    return absl::StrCat(text, "; of /out is handed over: ", Listed(files, "nothing"));
}

std::string Owner(const RecordFacts& facts) {
    std::string text = "its shim, under stockaded of this node; ends with its client";
    if (facts.contract != nullptr) absl::StrAppend(&text, ", or after ", facts.contract->timeout, facts.contract->approval ? "; started when approved" : "; started without an approval");
    return text;
}

std::string Evidence(const RecordFacts& facts) {
    const EvidenceConfig& evidence = facts.config->evidence;
    std::string text = evidence.on() ? absl::StrCat(evidence.dir, "/<UTC time>-<sandbox>, ", evidence.max_age_hours == 0 ? "without an end" : absl::StrCat("for ", evidence.max_age_hours, " hours")) : "no folder is kept (evidence.dir)";
    return absl::StrCat(text, facts.config->events.exporters.empty() ? "; events go to clients alone" : "; events go to its exporters");
}

}  // namespace

DesignRecord MakeDesignRecord(const RecordFacts& facts) {
    const policy::ResolvedPolicy& policy = *facts.policy;
    const char* mode = policy.mode == SK_MODE_OBSERVE ? "observe: refuses nothing" : "enforce";
    DesignRecord record;
    record.emplace_back("workload", Workload(facts));
    record.emplace_back("source", facts.contract != nullptr ? absl::StrCat("contract ", facts.contract->name, " sha256:", facts.contract_sha256) : absl::StrCat("asked for by its client", facts.tool.empty() ? "" : absl::StrCat(" as tool ", facts.tool), facts.session.empty() ? "" : absl::StrCat(", session ", facts.session)));
    record.emplace_back("policy", absl::StrCat(policy.name, " sha256:", facts.policy_hash, ", ", mode, facts.backend.empty() ? "" : absl::StrCat(", backend ", facts.backend)));
    record.emplace_back("uids", facts.uid != 0 ? absl::StrCat(facts.uid, ", of this sandbox alone") : absl::StrCat("one of ", facts.config->uid_first, " to ", facts.config->uid_first + facts.config->uid_count - 1, ", of one sandbox alone"));
    record.emplace_back("external path", ExternalPath(policy));
    record.emplace_back("credentials", Credentials(policy));
    record.emplace_back("writable scope", Writable(facts));
    record.emplace_back("lifecycle owner", Owner(facts));
    record.emplace_back("evidence", Evidence(facts));
    record.emplace_back("clean-up", "cgroup killed, empty, removed and looked at, within 100 ms or counted; what a killed launcher leaves goes within ten seconds (stockade gc)");
    for (auto& [name, value] : record) {
        std::string printable;
        (void)model::AppendEscaped(value, &printable);
        value = std::move(printable);
    }
    return record;
}

std::string RecordText(const DesignRecord& record) {
    std::string text;
    for (const auto& [name, value] : record) absl::StrAppendFormat(&text, "%-16s %s\n", name, value);
    return text;
}

std::string RecordJson(const DesignRecord& record) {
    JsonObject out;
    for (const auto& [name, value] : record) out.Add(absl::StrReplaceAll(name, {{" ", "_"}, {"-", "_"}}), value);
    return out.Done() + "\n";
}

std::string RecordMarkdown(const std::string& title, const DesignRecord& record) {
    std::string text = absl::StrCat("## ", title, "\n\n| | |\n| --- | --- |\n");
    for (const auto& [name, value] : record) absl::StrAppend(&text, "| ", name, " | ", absl::StrReplaceAll(value, {{"|", "\\|"}, {"<", "&lt;"}, {"*", "\\*"}}), " |\n");
    return text;
}

}  // namespace stockade::cmd
