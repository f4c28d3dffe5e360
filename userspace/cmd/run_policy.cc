#include "userspace/cmd/run_policy.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/policy/nearest.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

using policy::Diagnostic;

// Policies in directories are written by administrators; thousands mean a wrong directory.
constexpr size_t kMaxPolicyFiles = 4096;
// Texts whose policies are kept: a platform starts thousands of sandboxes under a few, and parsing one takes
// some milliseconds of each start. In all 2 MiB of text.
constexpr size_t kMaxKnownTexts = 32;
constexpr size_t kMaxKnownBytes = 64 << 10;

StatusOr<std::vector<std::string>> PolicyFiles(const std::vector<std::string>& directories) {
    std::vector<std::string> files;
    for (const std::string& directory : directories) {
        std::error_code error;
        std::vector<std::string> here;
        for (auto it = std::filesystem::directory_iterator(directory, error);
             !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
            const std::string extension = it->path().extension();
            if (extension == ".yaml" || extension == ".yml") here.push_back(it->path());
        }
        std::sort(here.begin(), here.end());
        files.insert(files.end(), here.begin(), here.end());
    }
    if (files.size() > kMaxPolicyFiles) {
        return absl::ResourceExhaustedError(absl::StrCat(files.size(), " files in ",
                                                         absl::StrJoin(directories, ", "), ": more than ",
                                                         kMaxPolicyFiles, " cannot be policies"));
    }
    return files;
}

std::string Errors(const std::vector<Diagnostic>& diagnostics) {
    std::vector<std::string> lines;
    for (const Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity == policy::Severity::kError) lines.push_back(ToString(diagnostic));
    }
    return absl::StrJoin(lines, "\n");
}

std::map<std::string, std::vector<Diagnostic>> ErrorsByFile(const std::vector<Diagnostic>& diagnostics) {
    std::map<std::string, std::vector<Diagnostic>> errors;
    for (const Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity == policy::Severity::kError) errors[diagnostic.at.file].push_back(diagnostic);
    }
    return errors;
}

// Errors by the namespace whose policies the file holds; "" where it holds another's too, or none that could be read.
std::map<std::string, std::string> BrokenByNamespace(const std::map<std::string, std::vector<Diagnostic>>& errors,
                                                     const std::vector<policy::SandboxPolicy>& policies) {
    std::map<std::string, std::string> broken;
    for (const auto& [file, diagnostics] : errors) {
        std::set<std::string> whose;
        for (const policy::SandboxPolicy& policy : policies) {
            if (policy.at.file == file) whose.insert(policy.name_space);
        }
        std::string& text = broken[whose.size() == 1 ? *whose.begin() : ""];
        absl::StrAppend(&text, text.empty() ? "" : "\n", Errors(diagnostics));
    }
    return broken;
}

bool HasLabels(const model::Labels& labels) {
    return !labels.session.empty() || !labels.tool.empty() || !labels.trace.empty() || !labels.free.empty();
}

bool Matches(const policy::SandboxPolicy& policy, const model::Labels& labels) {
    for (const auto& [key, value] : policy.match_labels) {
        const std::string* have = key == "session" ? &labels.session
                                  : key == "tool"  ? &labels.tool
                                  : key == "trace" ? &labels.trace
                                                   : nullptr;
        if (have == nullptr) {
            const auto it = labels.free.find(key);
            if (it == labels.free.end()) return false;
            have = &it->second;
        }
        if (*have != value) return false;
    }
    return !policy.match_labels.empty();
}

}  // namespace

Status PolicyStore::Refresh() {
    SK_ASSIGN_OR_RETURN(const std::vector<std::string> files, PolicyFiles(directories_));
    std::string signature = "v";
    for (const std::string& file : files) {
        struct stat info{};
        if (stat(file.c_str(), &info) != 0) continue;
        absl::StrAppend(&signature, file, ":", info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec, ".",
                        info.st_mtim.tv_nsec, "\n");
    }
    if (signature == signature_) return absl::OkStatus();
    std::vector<policy::SourceFile> sources;
    std::vector<Diagnostic> unread;
    for (const std::string& file : files) {
        StatusOr<std::string> text = ReadFile(file, policy::kMaxYamlBytes);
        if (text.ok()) {
            sources.push_back({.name = file, .text = *std::move(text)});
        } else {
            unread.push_back({policy::Severity::kError, {file, 0, 0}, std::string(text.status().message())});
        }
    }
    policy::ParseResult parsed = policy::ParseFiles(sources);
    parsed.diagnostics.insert(parsed.diagnostics.begin(), unread.begin(), unread.end());
    policy::PolicyLibrary library;
    const std::vector<policy::SandboxPolicy> policies = parsed.policies;
    library.Add(std::move(parsed.policies), parsed.diagnostics);
    const std::map<std::string, std::vector<Diagnostic>> errors = ErrorsByFile(parsed.diagnostics);
    for (const policy::SandboxPolicy& policy : policies) {
        // Of a name that two files claim, neither meaning is known to be the right one.
        const auto found = errors.find(policy.at.file);
        if (found != errors.end()) library.Refuse(policy.name, found->second);
    }
    broken_ = BrokenByNamespace(errors, policies);
    for (const auto& [name_space, text] : broken_) LogWarning("policies that are not used, for their errors: ", text);
    library_ = std::move(library);
    known_texts_.clear();
    signature_ = std::move(signature);
    return absl::OkStatus();
}

StatusOr<policy::ResolvedPolicy> PolicyStore::FromText(const api::PolicySource& source) const {
    const std::string file = source.filename().empty() ? "(policy)" : source.filename();
    policy::ParseResult parsed = policy::ParseFiles({{.name = file, .text = source.text()}});
    if (HasErrors(parsed.diagnostics)) return absl::InvalidArgumentError(Errors(parsed.diagnostics));
    if (parsed.policies.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(file, ": holds no SandboxPolicy"));
    }
    const std::string name = source.name().empty() ? parsed.policies.front().name : source.name();
    if (source.name().empty() && parsed.policies.size() > 1) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": holds ", parsed.policies.size(), " policies: keep one in the file"));
    }
    // What the file extends may be one of the agent's; its own names come first.
    policy::PolicyLibrary library;
    std::vector<policy::SandboxPolicy> known;
    for (const std::string& other : library_.Names()) {
        const bool own = std::any_of(parsed.policies.begin(), parsed.policies.end(),
                                     [&](const auto& policy) { return policy.name == other; });
        if (own) continue;
        if (!library.Has(other)) known.push_back(*library_.Find(other));
        const std::vector<Diagnostic>* refusal = library_.Refusal(other);
        if (refusal != nullptr) library.Refuse(other, *refusal);
    }
    std::vector<Diagnostic> ignored;
    library.Add(std::move(known), ignored);
    std::vector<Diagnostic> diagnostics;
    library.Add(std::move(parsed.policies), diagnostics);
    std::optional<policy::ResolvedPolicy> resolved = library.Resolve(name, diagnostics);
    if (!resolved || HasErrors(diagnostics)) return absl::InvalidArgumentError(Errors(diagnostics));
    return *std::move(resolved);
}

StatusOr<policy::ResolvedPolicy> PolicyStore::FromKnownText(const api::PolicySource& source) {
    const std::string key = source.SerializeAsString();
    const auto known = known_texts_.find(key);
    if (known != known_texts_.end()) return known->second;
    SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy policy, FromText(source));
    if (key.size() > kMaxKnownBytes) return policy;
    if (known_texts_.size() >= kMaxKnownTexts) known_texts_.clear();
    return known_texts_.emplace(key, std::move(policy)).first->second;
}

// Of the node: names that runs and all pods may have.
std::vector<std::string> PolicyStore::NodeNames() const {
    std::vector<std::string> names = library_.Names();
    std::erase_if(names, [this](const std::string& name) { return !library_.Find(name)->name_space.empty(); });
    return names;
}

// Empty = none. kAlreadyExists: several.
StatusOr<std::string> PolicyStore::SelectedName(const std::string& name_space, const model::Labels& labels) const {
    std::vector<std::string> matches;
    for (const std::string& name : library_.Names()) {
        const policy::SandboxPolicy& policy = *library_.Find(name);
        if (policy.name_space == name_space && Matches(policy, labels)) matches.push_back(name);
    }
    if (matches.size() > 1) {
        return absl::AlreadyExistsError(
            absl::StrCat("several policies select this sandbox (", absl::StrJoin(matches, ", "), ")"));
    }
    // The policy that was meant for these labels may be in a file that was not understood, and the
    // default may allow more.
    const auto broken = broken_.find(name_space);
    if (matches.empty() && broken != broken_.end() && HasLabels(labels)) {
        return absl::FailedPreconditionError(
            absl::StrCat("no policy selects this sandbox, but files with errors might: correct them, or "
                         "name a policy with --policy\n",
                         broken->second));
    }
    return matches.empty() ? "" : matches.front();
}

StatusOr<std::optional<policy::ResolvedPolicy>> PolicyStore::Select(const model::Labels& labels) {
    SK_RETURN_IF_ERROR(Refresh());
    SK_ASSIGN_OR_RETURN(const std::string name, SelectedName("", labels));
    if (name.empty()) return std::nullopt;
    SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy policy, library_.Resolve(name));
    return policy;
}

StatusOr<std::optional<policy::ResolvedPolicy>> PolicyStore::OfNamespace(const std::string& name_space, const std::string& name,
                                                                        const model::Labels& labels) {
    SK_RETURN_IF_ERROR(Refresh());
    std::string found = policy::QualifiedName(name_space, name);
    if (name.empty()) {
        SK_ASSIGN_OR_RETURN(found, SelectedName(name_space, labels));
    } else if (!library_.Has(found)) {
        found.clear();
    }
    if (found.empty()) return std::nullopt;
    SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy policy, library_.Resolve(found));
    return policy;
}

StatusOr<ChosenPolicy> PolicyStore::BySelector(const model::Labels& labels) const {
    const StatusOr<std::string> one = SelectedName("", labels);
    if (absl::IsAlreadyExists(one.status()))
        return absl::FailedPreconditionError(absl::StrCat(one.status().message(), ": name one with --policy"));
    SK_ASSIGN_OR_RETURN(const std::string selected, one);
    const std::string name = selected.empty() ? default_policy_ : selected;
    SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy policy, library_.Resolve(name));
    return ChosenPolicy{.policy = std::move(policy),
                        .note = selected.empty()
                                    ? absl::StrCat("no policy given and none selects it: using ", name)
                                    : absl::StrCat("policy ", name, " selects it")};
}

StatusOr<ChosenPolicy> PolicyStore::Choose(const api::PolicySource& source, const model::Labels& labels) {
    SK_RETURN_IF_ERROR(Refresh());
    if (!source.text().empty()) {
        SK_ASSIGN_OR_RETURN(policy::ResolvedPolicy policy, FromKnownText(source));
        return ChosenPolicy{.policy = std::move(policy), .note = ""};
    }
    if (source.name().empty()) return BySelector(labels);
    // A namespace's own is nothing by itself: what it may allow is said by another.
    const bool own = library_.Has(source.name()) && !library_.Find(source.name())->name_space.empty();
    StatusOr<policy::ResolvedPolicy> policy = own ? absl::NotFoundError("") : library_.Resolve(source.name());
    if (absl::IsNotFound(policy.status())) {
        const std::vector<std::string> names = NodeNames();
        const std::string nearest = policy::NearestWord(source.name(), names);
        const auto broken = broken_.find("");
        return absl::NotFoundError(absl::StrCat(
            "no policy ", source.name(), " in ", absl::StrJoin(directories_, ", "),
            " (a file is taken as well: --policy ./", source.name(), ".yaml)",
            nearest.empty() ? "" : "; did you mean '", nearest, nearest.empty() ? "" : "'?", "; known are ",
            absl::StrJoin(names, ", "), broken == broken_.end() ? "" : absl::StrCat("; files with errors:\n", broken->second)));
    }
    if (!policy.ok()) return policy.status();
    return ChosenPolicy{.policy = *std::move(policy), .note = ""};
}

}  // namespace stockade::cmd
