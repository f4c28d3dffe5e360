#include "userspace/cmd/rule_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/rules_run.h"
#include "userspace/detect/parse.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

namespace fs = std::filesystem;
using policy::Diagnostic;
using policy::Severity;

// Files whose errors show only when others were left out, as they name rules of those.
constexpr int kMaxRounds = 4;
// Errors that are told one by one: what a person reads.
constexpr size_t kMaxTold = 20;

// Name below its directory -> the file of the last directory that has it.
std::map<std::string, std::string> Layers(const RulesConfig& config, std::vector<std::string>* errors) {
    std::map<std::string, std::string> files;
    size_t seen = 0;
    for (const std::string& dir : config.dirs) {
        std::error_code error;
        if (!fs::exists(dir, error)) continue;  // rules.d is there where somebody made it
        fs::recursive_directory_iterator it(dir, error), end;
        for (; !error && it != end; it.increment(error)) {
            std::error_code ignored;  // what went meanwhile is no file
            const std::string extension = it->path().extension();
            if (!it->is_regular_file(ignored) || (extension != ".yaml" && extension != ".yml")) continue;
            files[it->path().lexically_relative(dir).string()] = it->path().string();
            if (++seen > kMaxRuleFiles) {
                if (errors != nullptr)
                    errors->push_back(absl::StrCat(dir, ": more than ", kMaxRuleFiles, " files"));
                return {};
            }
        }
        if (error && errors != nullptr) errors->push_back(absl::StrCat(dir, ": ", error.message()));
    }
    return files;
}

std::vector<policy::SourceFile> Read(const RulesConfig& config, std::vector<std::string>* errors) {
    std::vector<policy::SourceFile> sources;
    for (const auto& [name, path] : Layers(config, errors)) {
        StatusOr<std::string> text = ReadFile(path, policy::kMaxYamlBytes);
        if (!text.ok()) {
            errors->push_back(std::string(text.status().message()));
        } else if (!absl::StripAsciiWhitespace(*text).empty()) {
            sources.push_back({.name = path, .text = *std::move(text)});
        }
    }
    return sources;
}

// Files that have errors. Keeps what the diagnostics say.
std::set<std::string> Sort(const std::vector<Diagnostic>& diagnostics, LoadedRules* loaded) {
    std::set<std::string> broken;
    for (const Diagnostic& diagnostic : diagnostics) {
        const bool error = diagnostic.severity == Severity::kError;
        std::vector<std::string>& told = error ? loaded->errors : loaded->warnings;
        if (told.size() < kMaxTold) told.push_back(ToString(diagnostic));
        if (error) broken.insert(diagnostic.at.file);
    }
    return broken;
}

// Whom `disable` names. Unknown words are warned of: they silence nothing.
void Disable(const RulesConfig& config, LoadedRules* loaded) {
    for (const std::string& word : config.disable) {
        bool known = false;
        for (const detect::Rule& rule : loaded->rules) {
            if (rule.id != word && rule.name != word) continue;
            loaded->disabled.insert(rule.hash);
            known = true;
        }
        if (!known)
            loaded->warnings.push_back(
                absl::StrCat("rules.disable: no rule has the id or name '", word, "'"));
    }
}

}  // namespace

LoadedRules LoadRules(const RulesConfig& config, Broken broken) {
    LoadedRules loaded;
    std::vector<policy::SourceFile> sources = Read(config, &loaded.errors);
    loaded.files = sources.size();
    for (int round = 0; round < kMaxRounds; ++round) {
        detect::ParsedRules parsed = detect::ParseRules(sources);
        const std::set<std::string> bad = Sort(parsed.diagnostics, &loaded);
        if (bad.empty()) {
            if (broken == Broken::kLeaveOut || loaded.errors.empty()) loaded.rules = std::move(parsed.rules);
            break;
        }
        if (broken == Broken::kGiveUp) break;
        const size_t before = sources.size();
        std::erase_if(sources, [&](const policy::SourceFile& file) { return bad.count(file.name) != 0; });
        if (sources.size() == before) break;
    }
    Disable(config, &loaded);
    return loaded;
}

std::string RulesSignature(const RulesConfig& config) {
    std::string signature;
    for (const auto& [name, path] : Layers(config, nullptr)) {
        struct stat info{};
        if (stat(path.c_str(), &info) != 0) continue;
        absl::StrAppend(&signature, path, ":", info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec, ".",
                        info.st_mtim.tv_nsec, "\n");
    }
    return signature;
}

}  // namespace stockade::cmd
