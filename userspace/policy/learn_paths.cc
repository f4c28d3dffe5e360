// Paths that were seen, as patterns of a policy.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/policy/learn.h"

namespace stockade::policy {
namespace {

// The sandbox's own, or handed to it: nothing is gained by naming single files in them.
constexpr const char* kOwn[] = {"/tmp", "/out", "/in", "/dev/shm", "/var/tmp"};
// Below these a directory may stand for its files; it has so many components at least, so that /usr/lib never does.
constexpr const char* kProgramRoots[] = {"usr", "opt", "lib", "lib64", "bin", "sbin"};
constexpr size_t kLeastDepth = 3;
// A run of so many hexadecimal digits is no word.
constexpr size_t kHexRun = 8;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Escaped(absl::string_view text) {
    std::string out;
    for (const char c : text) {
        if (absl::StrContains("*?[]{}\\", c)) out += '\\';
        out += c;
    }
    return out;
}

// "python3.11" becomes "python3.*": the next update changes what stands behind the first dot.
bool ReplaceVersion(absl::string_view name, std::string* out) {
    for (size_t i = 0; i + 2 < name.size(); ++i) {
        if (!IsDigit(name[i]) || name[i + 1] != '.' || !IsDigit(name[i + 2])) continue;
        size_t end = i + 2;
        while (end < name.size() && (IsDigit(name[end]) || (name[end] == '.' && end + 1 < name.size() && IsDigit(name[end + 1])))) ++end;
        *out = absl::StrCat(Escaped(name.substr(0, i + 1)), ".*", Escaped(name.substr(end)));
        return true;
    }
    return false;
}

// "0f3a9c2b77" in a name becomes a star; "deadbeef" alone could be a word, so a digit has to be among them.
bool ReplaceRandom(absl::string_view name, std::string* out) {
    for (size_t start = 0; start < name.size(); ++start) {
        size_t end = start;
        bool digit = false;
        while (end < name.size() && (IsDigit(name[end]) || (name[end] >= 'a' && name[end] <= 'f'))) digit |= IsDigit(name[end++]);
        if (end - start >= kHexRun && digit) {
            *out = absl::StrCat(Escaped(name.substr(0, start)), "*", Escaped(name.substr(end)));
            return true;
        }
        start = std::max(start, end);
    }
    return false;
}

std::string GeneralName(absl::string_view name) {
    std::string out;
    if (ReplaceVersion(name, &out) || ReplaceRandom(name, &out)) return out;
    return Escaped(name);
}

bool IsNumber(absl::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit); }

struct Directory {
    std::map<std::string, Directory> below;
    std::vector<std::pair<std::string, Evidence>> files;  // pattern as a whole
    size_t Count() const {
        size_t count = files.size();
        for (const auto& [name, directory] : below) count += directory.Count();
        return count;
    }
};

void Sum(const Evidence& one, Evidence* all) {
    if (all->count == 0) *all = one;
    else all->count += one.count;
}

void SumAll(const Directory& directory, Evidence* all) {
    for (const auto& [pattern, evidence] : directory.files) Sum(evidence, all);
    for (const auto& [name, below] : directory.below) SumAll(below, all);
}

void Collect(const Directory& directory, const std::vector<std::string>& at, std::map<std::string, Evidence>* out) {
    const bool programs = !at.empty() && std::find(std::begin(kProgramRoots), std::end(kProgramRoots), at[0]) != std::end(kProgramRoots);
    if (programs && at.size() >= kLeastDepth && directory.Count() >= kManyFiles) {
        SumAll(directory, &(*out)[absl::StrCat("/", absl::StrJoin(at, "/"), "/**")]);
        return;
    }
    for (const auto& [pattern, evidence] : directory.files) Sum(evidence, &(*out)[pattern]);
    for (const auto& [name, below] : directory.below) {
        std::vector<std::string> deeper = at;
        deeper.push_back(name);
        Collect(below, deeper, out);
    }
}

}  // namespace

bool IsSensitive(absl::string_view path) {
    static constexpr const char* kParts[] = {"/.ssh/", "/.aws/", "/.kube/", "/.gnupg/", "/.config/gcloud/", "/.azure/", "/.docker/",
                                             "/run/secrets/", "/etc/ssl/private/", "/etc/sudoers", "/sys/fs/cgroup", "/sys/fs/bpf"};
    static constexpr const char* kEnds[] = {"/.netrc", "/.git-credentials", "/.pypirc", "/.npmrc", "/.pgpass", "/etc/shadow", "/etc/gshadow",
                                            "/docker.sock", "/containerd.sock", "/crio.sock", "/nri.sock", "/environ", "/mem", "/id_rsa",
                                            "/id_ed25519", "/release_agent", "/core_pattern"};
    return std::any_of(std::begin(kParts), std::end(kParts), [&](const char* part) { return absl::StrContains(path, part); }) ||
           std::any_of(std::begin(kEnds), std::end(kEnds), [&](const char* end) { return absl::EndsWith(path, end); });
}

std::string GeneralPattern(absl::string_view path) {
    for (const absl::string_view own : kOwn) {
        if (path == own || absl::StartsWith(path, absl::StrCat(own, "/"))) return absl::StrCat(own, "/**");
    }
    std::vector<std::string> names;
    const std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
    for (size_t i = 0; i < parts.size(); ++i) {
        if (i == 1 && parts[0] == "proc" && IsNumber(parts[i])) names.push_back("self");
        else if (i == 3 && parts[0] == "proc" && parts[2] == "task" && IsNumber(parts[i])) names.push_back("*");
        else names.push_back(GeneralName(parts[i]));
    }
    return absl::StrCat("/", absl::StrJoin(names, "/"));
}

std::map<std::string, Evidence> GeneralPatterns(const std::map<std::string, Evidence>& paths, bool whole_directories) {
    std::map<std::string, Evidence> patterns, out;
    for (const auto& [path, evidence] : paths) Sum(evidence, &patterns[GeneralPattern(path)]);
    if (!whole_directories) return patterns;
    Directory root;
    for (const auto& [pattern, evidence] : patterns) {
        std::vector<std::string> names = absl::StrSplit(pattern, '/', absl::SkipEmpty());
        if (names.empty()) {
            Sum(evidence, &out[pattern]);
            continue;
        }
        names.pop_back();
        Directory* at = &root;
        for (const std::string& name : names) at = &at->below[name];
        at->files.push_back({pattern, evidence});
    }
    Collect(root, {}, &out);
    return out;
}

}  // namespace stockade::policy
