#include "userspace/cmd/config.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <functional>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;  // a config has a dozen lines
// These have keys of their own (config_events.h, config_evidence.h, config_kubernetes.h, config_rules.h, config_service.h).
const std::vector<std::string>& Sections() {
    static const auto* sections = new std::vector<std::string>{"api", "events", "evidence", "kubernetes", "metrics", "rules"};
    return *sections;
}

Status ParseSection(const std::string& path, const std::string& key, const YAML::Node& node, Config* config) {
    if (key == "api") return ParseApi(path, node, &config->api);
    if (key == "rules") return ParseRulesConfig(path, node, &config->rules);
    if (key == "evidence") return ParseEvidence(path, node, &config->evidence);
    if (key == "kubernetes") return ParseKubernetes(path, node, &config->kubernetes);
    if (key == "metrics") return ParseMetrics(path, node, &config->metrics);
    return ParseEvents(path, node, &config->events);
}

using Setter = std::function<void(const YAML::Node&, Config*)>;

const std::map<std::string, Setter>& Setters() {
    static const auto* setters = new std::map<std::string, Setter>{
        {"runtime_dir", [](const YAML::Node& n, Config* c) { c->runtime_dir = n.as<std::string>(); }},
        {"state_dir", [](const YAML::Node& n, Config* c) { c->state_dir = n.as<std::string>(); }},
        {"pin_dir", [](const YAML::Node& n, Config* c) { c->pin_dir = n.as<std::string>(); }},
        {"cgroup_name", [](const YAML::Node& n, Config* c) { c->cgroup_name = n.as<std::string>(); }},
        {"policies_dir", [](const YAML::Node& n, Config* c) { c->policy_dirs = {n.as<std::string>()}; }},
        {"policy_dirs",
         [](const YAML::Node& n, Config* c) { c->policy_dirs = n.as<std::vector<std::string>>(); }},
        {"default_policy", [](const YAML::Node& n, Config* c) { c->default_policy = n.as<std::string>(); }},
        {"backend", [](const YAML::Node& n, Config* c) { c->backend = n.as<std::string>(); }},
        {"uid_range",
         [](const YAML::Node& n, Config* c) {
             const auto range = n.as<std::vector<uint32_t>>();
             if (range.size() != 2)
                 throw YAML::RepresentationException(n.Mark(), "two numbers: [first, count]");
             c->uid_first = range[0];
             c->uid_count = range[1];
         }},
        {"kills_per_minute", [](const YAML::Node& n, Config* c) { c->kills_per_minute = n.as<uint32_t>(); }},
        {"memory_max_mib", [](const YAML::Node& n, Config* c) { c->memory_max_mib = n.as<uint64_t>(); }},
        {"swap_max_mib", [](const YAML::Node& n, Config* c) { c->swap_max_mib = n.as<uint64_t>(); }},
        {"pids_max", [](const YAML::Node& n, Config* c) { c->pids_max = n.as<uint64_t>(); }},
        {"cpu_max_percent", [](const YAML::Node& n, Config* c) { c->cpu_max_percent = n.as<uint32_t>(); }},
        {"made_ahead", [](const YAML::Node& n, Config* c) { c->made_ahead = n.as<bool>(); }},
        {"agent_wait_seconds",
         [](const YAML::Node& n, Config* c) { c->agent_wait_seconds = n.as<uint32_t>(); }},
    };
    return *setters;
}

std::string At(const std::string& path, const YAML::Mark& mark) {
    return mark.is_null() ? path : absl::StrCat(path, ":", mark.line + 1, ":", mark.column + 1);
}

// The agent's working directory is not that of whoever wrote the file.
Status CheckPath(const char* key, const std::string& value, const std::string& at) {
    if (!value.empty() && value.front() == '/') return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(at, ": ", key, " takes an absolute path, not '", value, "'"));
}

// `path` is where the last change was written: all was well before it.
Status Check(const Config& config, const std::string& path) {
    SK_RETURN_IF_ERROR(CheckPath("runtime_dir", config.runtime_dir, path));
    SK_RETURN_IF_ERROR(CheckPath("state_dir", config.state_dir, path));
    SK_RETURN_IF_ERROR(CheckPath("pin_dir", config.pin_dir, path));
    for (const std::string& dir : config.policy_dirs) SK_RETURN_IF_ERROR(CheckPath("policy_dirs", dir, path));
    if (config.backend != "auto" && config.backend != "signal" && config.backend != "lsm") {
        return absl::InvalidArgumentError(absl::StrCat(path, ": backend is auto, signal or lsm"));
    }
    // uid 0 and those of people and services are never a sandbox's.
    if (config.uid_first < 65536 || config.uid_count == 0 ||
        uint64_t{config.uid_first} + config.uid_count > 0xfffffffe) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": uid_range [first, count] must lie between 65536 and 4294967294"));
    }
    constexpr uint64_t kMostMib = uint64_t{1} << 40;  // as bytes it still fits
    if (config.memory_max_mib > kMostMib || config.swap_max_mib > kMostMib) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": memory_max_mib, swap_max_mib: too large"));
    }
    if (config.cgroup_name.empty() || config.cgroup_name.find('/') != std::string::npos ||
        config.cgroup_name == "." || config.cgroup_name == "..") {
        return absl::InvalidArgumentError(absl::StrCat(path, ": cgroup_name is one name without a slash"));
    }
    return absl::OkStatus();
}

// What a key takes, where yaml-cpp says no more than "bad conversion".
std::string Expected(const std::string& key, const YAML::Node& value) {
    if (key == "policy_dirs") return "takes a list of directories: [/a, /b]";
    if (key == "uid_range") return "takes two numbers: [first, count]";
    if (!value.IsScalar()) return "takes a single value";
    if (key == "made_ahead") return absl::StrCat("takes true or false, not '", value.Scalar(), "'");
    return absl::StrCat("takes a whole number, not '", value.Scalar(), "'");
}

// `lines`: of the keys before it.
Status ParseEntry(const std::string& path, const YAML::Node& name, const YAML::Node& value,
                  std::map<std::string, int>* lines, Config* config) {
    const std::string key = name.as<std::string>();
    const std::string at = At(path, name.Mark());
    const auto setter = Setters().find(key);
    const bool section = absl::c_linear_search(Sections(), key);
    if (setter == Setters().end() && !section) {
        std::vector<std::string> known = Sections();
        for (const auto& [word, ignored] : Setters()) known.push_back(word);
        return absl::InvalidArgumentError(
            absl::StrCat(at, ": unknown key ", key, policy::Suggest(key, known)));
    }
    const auto [before, added] = lines->emplace(key, name.Mark().line + 1);
    if (!added) {
        return absl::InvalidArgumentError(
            absl::StrCat(at, ": duplicate key ", key, ", first on line ", before->second));
    }
    if (section) return ParseSection(path, key, value, config);
    try {
        setter->second(value, config);
    } catch (const YAML::BadConversion&) {
        return absl::InvalidArgumentError(
            absl::StrCat(At(path, value.Mark()), ": ", key, " ", Expected(key, value)));
    }
    return Check(*config, At(path, value.Mark()));
}

Status Parse(const std::string& path, const std::string& text, Config* config) {
    try {
        const YAML::Node root = YAML::Load(text);
        if (root.IsNull()) return absl::OkStatus();
        if (!root.IsMap())
            return absl::InvalidArgumentError(absl::StrCat(path, ": keys and values are expected"));
        std::map<std::string, int> lines;
        for (const auto& entry : root) {
            SK_RETURN_IF_ERROR(ParseEntry(path, entry.first, entry.second, &lines, config));
        }
    } catch (const YAML::Exception& error) {
        return absl::InvalidArgumentError(absl::StrCat(At(path, error.mark), ": ", error.msg));
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<Config> LoadConfig(const std::string& path, bool must_exist) {
    Config config;
    const StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
    if (!text.ok()) {
        if (absl::IsNotFound(text.status()) && !must_exist) return config;
        return text.status();
    }
    SK_RETURN_IF_ERROR(Parse(path, *text, &config));
    return config;
}

}  // namespace stockade::cmd
