#include "userspace/cmd/policy_load.h"

#include <dirent.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/json.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

std::vector<std::string> YamlFiles(const std::string& dir) {
    std::vector<std::string> files;
    std::unique_ptr<DIR, int (*)(DIR*)> open(dir.empty() ? nullptr : opendir(dir.c_str()), closedir);
    while (open != nullptr) {
        const dirent* entry = readdir(open.get());
        if (entry == nullptr) break;
        const std::string name = entry->d_name;
        if (absl::EndsWith(name, ".yaml") || absl::EndsWith(name, ".yml"))
            files.push_back(absl::StrCat(dir, "/", name));
    }
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<policy::SourceFile> ReadSources(const std::vector<std::string>& files,
                                            std::vector<policy::Diagnostic>& diagnostics) {
    std::vector<policy::SourceFile> sources;
    for (const std::string& file : files) {
        StatusOr<std::string> text = ReadFile(file, policy::kMaxYamlBytes);
        if (text.ok()) {
            sources.push_back({file, *std::move(text)});
        } else {
            const bool large = absl::IsResourceExhausted(text.status());
            diagnostics.push_back({policy::Severity::kError,
                                   {file, 0, 0},
                                   large ? absl::StrCat("larger than ", policy::kMaxYamlBytes, " bytes")
                                         : std::string(text.status().message())});
        }
    }
    return sources;
}

}  // namespace

LoadedPolicies LoadPolicies(const std::vector<std::string>& files, const std::vector<std::string>& with,
                            const std::vector<std::string>& dirs) {
    LoadedPolicies out;
    policy::ParseResult parsed = policy::ParseFiles(ReadSources(files, out.diagnostics));
    out.policies = parsed.policies;
    out.tests = std::move(parsed.tests);
    out.diagnostics.insert(out.diagnostics.end(), parsed.diagnostics.begin(), parsed.diagnostics.end());
    std::set<std::string> names;
    for (const policy::SandboxPolicy& policy : out.policies) names.insert(policy.name);

    const auto is_own = [&](const std::string& other) {
        std::error_code ignored;
        return std::any_of(files.begin(), files.end(), [&](const std::string& file) {
            return std::filesystem::equivalent(file, other, ignored);
        });
    };
    std::vector<std::string> others = with;
    std::set<std::string> installed;
    for (const std::string& dir : dirs) {
        for (std::string& file : YamlFiles(dir)) {
            installed.insert(file);
            others.push_back(std::move(file));
        }
    }
    // The file under test may lie in the directory itself.
    std::erase_if(others, is_own);
    std::vector<policy::Diagnostic> diagnostics;
    policy::ParseResult bases = policy::ParseFiles(ReadSources(others, diagnostics));
    diagnostics.insert(diagnostics.end(), bases.diagnostics.begin(), bases.diagnostics.end());
    std::set<std::string> broken;
    for (policy::Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity != policy::Severity::kError) continue;
        if (installed.count(std::string(policy::FileOfItem(diagnostic.at.file))) != 0) {
            broken.insert(diagnostic.at.file);
            diagnostic.severity = policy::Severity::kWarning;
            diagnostic.message = absl::StrCat("not used: ", diagnostic.message);
        }
        out.diagnostics.push_back(std::move(diagnostic));
    }
    std::erase_if(bases.policies,
                  [&](const policy::SandboxPolicy& policy) { return broken.count(policy.at.file) != 0; });
    // A draft of an installed policy stands in for it.
    std::erase_if(bases.policies,
                  [&](const policy::SandboxPolicy& policy) { return names.count(policy.name) != 0; });
    std::vector<policy::SandboxPolicy> own = parsed.policies;
    std::set<std::string> added;
    // A second policy of one name is an error already.
    std::erase_if(own,
                  [&](const policy::SandboxPolicy& policy) { return !added.insert(policy.name).second; });
    out.library.Add(std::move(bases.policies), out.diagnostics);
    out.library.Add(std::move(own), out.diagnostics);
    return out;
}

std::string DiagnosticJson(const policy::Diagnostic& diagnostic) {
    return JsonObject()
        .Add("severity", diagnostic.severity == policy::Severity::kError ? "error" : "warning")
        .Add("file", diagnostic.at.file)
        .Add("line", diagnostic.at.line)
        .Add("column", diagnostic.at.column)
        .Add("message", diagnostic.message)
        .Done();
}

}  // namespace stockade::cmd
