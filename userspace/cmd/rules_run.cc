#include "userspace/cmd/rules_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/policy_load.h"
#include "userspace/detect/rule_tests.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

using detect::Rule;
using policy::Diagnostic;
using policy::Severity;

namespace fs = std::filesystem;

bool IsRuleFile(const fs::path& path) { return path.extension() == ".yaml" || path.extension() == ".yml"; }

StatusOr<std::vector<std::string>> FilesOf(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
    std::vector<std::string> files;
    fs::recursive_directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error)) {
        if (!it->is_regular_file(error) || !IsRuleFile(it->path())) continue;
        files.push_back(it->path().string());
        if (files.size() > kMaxRuleFiles)
            return absl::ResourceExhaustedError(absl::StrCat(path, ": more than ", kMaxRuleFiles, " files"));
    }
    if (error) return ErrnoStatus(error.value(), absl::StrCat("read ", path));
    if (files.empty())
        return absl::NotFoundError(absl::StrCat(path, ": no *.yaml or *.yml in this directory"));
    std::sort(files.begin(), files.end());
    return files;
}

// A policy or a contract, which may lie beside rules: no rule has this key.
bool IsOtherDocument(const std::string& text) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
        if (absl::StartsWith(line, "apiVersion: stockade.dev/")) return true;
    }
    return false;
}

constexpr std::pair<const char*, sk_section> kSections[] = {{"exec", SK_SECTION_EXEC},
                                                            {"files", SK_SECTION_FILES},
                                                            {"network", SK_SECTION_NETWORK},
                                                            {"dns", SK_SECTION_DNS}};

// Rules whose events a policy does not record, by section: one warning for all of them.
void AddStarved(const policy::ResolvedPolicy& resolved, const std::vector<Rule>& rules,
                std::vector<Diagnostic>& diagnostics) {
    for (const auto& [name, section] : kSections) {
        const sk_record record = resolved.record[section];
        if (record == SK_RECORD_ALL) continue;
        std::vector<std::string> starved;
        for (const Rule& rule : rules) {
            if (rule.correlation) continue;
            for (const std::string& needed : detect::RecordedBy(rule.source)) {
                if (needed == name) starved.push_back(rule.title);
            }
        }
        if (starved.empty()) continue;
        const size_t all = starved.size();
        starved.resize(std::min<size_t>(all, 3));
        diagnostics.push_back(
            {Severity::kWarning, resolved.at,
             absl::StrCat("policy '", resolved.name, "' records only ",
                          record == SK_RECORD_FIRST ? "the first of each operation" : "violations", " of ",
                          name, ": ", all, " rules see no more than that: ", absl::StrJoin(starved, ", "),
                          all > 3 ? ", ..." : "")});
    }
}

bool CheckPolicies(const RulesArgs& args, const std::vector<Rule>& rules,
                   std::vector<Diagnostic>& diagnostics) {
    for (const std::string& name : args.policies) {
        std::error_code error;
        const bool file = fs::exists(name, error);
        LoadedPolicies loaded = LoadPolicies(
            file ? std::vector<std::string>{name} : std::vector<std::string>{}, {}, args.policy_dirs);
        if (policy::HasErrors(loaded.diagnostics)) {
            diagnostics.insert(diagnostics.end(), loaded.diagnostics.begin(), loaded.diagnostics.end());
            return false;
        }
        std::vector<std::string> names;
        for (const policy::SandboxPolicy& each : loaded.policies) names.push_back(each.name);
        if (!file) names = {name};
        for (const std::string& each : names) {
            const std::optional<policy::ResolvedPolicy> resolved = loaded.library.Resolve(each, diagnostics);
            if (!resolved) return false;
            AddStarved(*resolved, rules, diagnostics);
        }
    }
    return true;
}

std::string Count(size_t n, const char* what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

std::string Xml(const std::string& text) {
    return absl::StrReplaceAll(JsonString(text).substr(1, JsonString(text).size() - 2),
                               {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\\\"", "&quot;"}});
}

std::string JUnit(const std::vector<Rule>& rules, const std::vector<detect::TestResult>& results) {
    std::map<size_t, std::vector<const detect::TestResult*>> by_rule;
    size_t failures = 0;
    for (const detect::TestResult& result : results) {
        by_rule[result.rule].push_back(&result);
        failures += result.ok ? 0 : 1;
    }
    std::string out = absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"",
                                   results.size(), "\" failures=\"", failures, "\">\n");
    for (const auto& [place, cases] : by_rule) {
        const size_t failed = static_cast<size_t>(
            std::count_if(cases.begin(), cases.end(), [](const detect::TestResult* r) { return !r->ok; }));
        absl::StrAppend(&out, "  <testsuite name=\"", Xml(rules[place].title), "\" tests=\"", cases.size(),
                        "\" failures=\"", failed, "\">\n");
        for (const detect::TestResult* result : cases) {
            absl::StrAppend(&out, "    <testcase classname=\"", Xml(rules[place].Ident()), "\" name=\"",
                            Xml(result->name), "\"");
            if (result->ok) {
                out += "/>\n";
            } else {
                absl::StrAppend(&out, "><failure message=\"", Xml(result->why), "\">",
                                Xml(policy::ToString(result->at)), "</failure></testcase>\n");
            }
        }
        out += "  </testsuite>\n";
    }
    return out + "</testsuites>\n";
}

std::string Tap(const std::vector<Rule>& rules, const std::vector<detect::TestResult>& results) {
    std::string out = absl::StrCat("TAP version 13\n1..", results.size(), "\n");
    size_t number = 0;
    for (const detect::TestResult& result : results) {
        // A # would begin a directive.
        const std::string name = absl::StrReplaceAll(rules[result.rule].title, {{"#", "\\#"}});
        absl::StrAppend(&out, result.ok ? "ok " : "not ok ", ++number, " - ", name, ": ", result.name, "\n");
        if (!result.ok)
            absl::StrAppend(&out, "  ---\n  message: ", JsonString(result.why),
                            "\n  at: ", JsonString(policy::ToString(result.at)), "\n  ...\n");
    }
    return out;
}

std::string TestJson(const std::vector<Rule>& rules, const std::vector<detect::TestResult>& results) {
    std::vector<std::string> rows;
    for (const detect::TestResult& result : results) {
        rows.push_back(JsonObject()
                           .Add("rule", rules[result.rule].Ident())
                           .Add("title", rules[result.rule].title)
                           .Add("test", result.name)
                           .Add("ok", result.ok)
                           .Add("why", result.why)
                           .Add("file", result.at.file)
                           .Add("line", result.at.line)
                           .Done());
    }
    return absl::StrCat(JsonArray(rows), "\n");
}

std::string ListJson(const Rule& rule) {
    const auto array = [](const std::vector<std::string>& texts) {
        std::vector<std::string> quoted;
        for (const std::string& text : texts) quoted.push_back(JsonString(text));
        return JsonArray(quoted);
    };
    JsonObject row;
    row.Add("id", rule.id).Add("name", rule.name).Add("title", rule.title).Add("status", rule.status);
    row.Add("level", std::string(detect::LevelName(rule.level)));
    row.Add("source", rule.correlation ? "correlation" : detect::ToString(rule.source));
    row.AddRaw("tags", array(rule.tags)).AddRaw("falsepositives", array(rule.falsepositives));
    row.Add("response", std::string(detect::ActionName(rule.response ? rule.response->action
                                                                     : detect::ResponseAction::kAlert)));
    row.Add("tests", static_cast<uint64_t>(rule.tests.size())).Add("hash", rule.hash);
    return row.Add("file", rule.at.file).Add("line", rule.at.line).Done();
}

}  // namespace

StatusOr<std::vector<policy::SourceFile>> ReadRuleFiles(const std::vector<std::string>& paths,
                                                        RulesOutput& io) {
    std::vector<policy::SourceFile> out;
    std::set<std::string> seen;
    for (const std::string& path : paths) {
        SK_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
        size_t others = 0;
        for (const std::string& file : files) {
            if (!seen.insert(file).second) continue;
            // One byte more than the reader takes, so that it says what is wrong, at that file.
            SK_ASSIGN_OR_RETURN(std::string text, ReadFile(file, policy::kMaxYamlBytes + 1));
            if (file != path && IsOtherDocument(text)) {
                ++others;
                continue;
            }
            out.push_back({file, std::move(text)});
        }
        if (others == 0) continue;
        if (others == files.size())
            return absl::NotFoundError(absl::StrCat(path, ": only policies and the like, and no rules"));
        absl::StrAppend(&io.err, "stockade: rules: ", path, ": left out ", Count(others, "file"),
                        " with apiVersion, which no rule has\n");
    }
    return out;
}

std::optional<std::vector<Rule>> UsableRules(const RulesArgs& args, RulesOutput& io) {
    StatusOr<std::vector<policy::SourceFile>> files = ReadRuleFiles(args.paths, io);
    if (!files.ok()) {
        absl::StrAppend(&io.err, "stockade: rules: ", files.status().message(), "\n");
        return std::nullopt;
    }
    detect::ParsedRules parsed = detect::ParseRules(*files);
    if (!policy::HasErrors(parsed.diagnostics)) return std::move(parsed.rules);
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        if (diagnostic.severity == Severity::kError)
            absl::StrAppend(&io.err, policy::ToString(diagnostic), "\n");
    }
    return std::nullopt;
}

int RulesCheck(const RulesArgs& args, RulesOutput& io) {
    StatusOr<std::vector<policy::SourceFile>> files = ReadRuleFiles(args.paths, io);
    if (!files.ok()) {
        absl::StrAppend(&io.err, "stockade: rules: ", files.status().message(), "\n");
        return kRulesUsage;
    }
    detect::ParsedRules parsed = detect::ParseRules(*files);
    const bool policies = CheckPolicies(args, parsed.rules, parsed.diagnostics);
    size_t errors = 0;
    std::vector<std::string> rows;
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        errors += diagnostic.severity == Severity::kError ? 1 : 0;
        rows.push_back(args.json ? DiagnosticJson(diagnostic) : policy::ToString(diagnostic) + "\n");
    }
    if (args.json) {
        io.out = JsonObject()
                     .Add("rules", static_cast<uint64_t>(parsed.rules.size()))
                     .AddRaw("diagnostics", JsonArray(rows))
                     .Done() +
                 "\n";
    } else {
        io.out = absl::StrCat(absl::StrJoin(rows, ""), Count(parsed.rules.size(), "rule"), " in ",
                              Count(files->size(), "file"), ": ", Count(errors, "error"), ", ",
                              Count(parsed.diagnostics.size() - errors, "warning"), "\n");
    }
    if (!policies) return kRulesUsage;
    return errors > 0 || (args.strict && !parsed.diagnostics.empty()) ? kRulesFindings : kRulesOk;
}

int RulesTest(const RulesArgs& args, RulesOutput& io) {
    const std::optional<std::vector<Rule>> rules = UsableRules(args, io);
    if (!rules) return kRulesUsage;
    const std::vector<detect::TestResult> results = detect::RunTests(*rules);
    size_t failed = 0, untested = 0;
    for (const detect::TestResult& result : results) failed += result.ok ? 0 : 1;
    for (const Rule& rule : *rules) untested += rule.tests.empty() ? 1 : 0;
    io.out = args.json ? TestJson(*rules, results) : Tap(*rules, results);
    absl::StrAppend(&io.err, Count(rules->size(), "rule"), ", ", Count(results.size(), "sample"), ", ",
                    failed, " failed, ", Count(untested, "rule"), " without tests\n");
    if (!args.junit.empty()) {
        std::ofstream file(args.junit);
        file << JUnit(*rules, results);
        if (!file.flush()) {
            absl::StrAppend(&io.err, "stockade: rules: write ", args.junit, ": failed\n");
            return kRulesUsage;
        }
    }
    // Nothing that was looked at is nothing that is right.
    if (results.empty()) absl::StrAppend(&io.err, "stockade: rules: none of these rules has tests\n");
    return failed > 0 || results.empty() ? kRulesFindings : kRulesOk;
}

int RulesList(const RulesArgs& args, RulesOutput& io) {
    const std::optional<std::vector<Rule>> rules = UsableRules(args, io);
    if (!rules) return kRulesUsage;
    std::vector<std::string> rows;
    for (const Rule& rule : *rules) {
        if (args.json) {
            rows.push_back(ListJson(rule));
        } else {
            absl::StrAppendFormat(&io.out, "%-13s %-25s %s\n", std::string(detect::LevelName(rule.level)),
                                  rule.correlation ? "correlation" : detect::ToString(rule.source),
                                  rule.title);
        }
    }
    if (args.json) io.out = absl::StrCat(JsonArray(rows), "\n");
    return kRulesOk;
}

}  // namespace stockade::cmd
