#include "userspace/cmd/config_record.h"

#include <unistd.h>

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxRecordBytes = 1 << 20;  // as much as a configuration may have

std::string PathOf(const Config& config) { return config.runtime_dir + "/agent.config"; }

// Key -> value, in one line whatever it holds. Without runtime_dir: it is what leads to the record.
std::map<std::string, std::string> Values(const Config& config) {
    return {{"state_dir", absl::CHexEscape(config.state_dir)},
            {"pin_dir", absl::CHexEscape(config.pin_dir)},
            {"cgroup_name", absl::CHexEscape(config.cgroup_name)},
            {"policy_dirs", absl::CHexEscape(absl::StrJoin(config.policy_dirs, "\n"))},
            {"default_policy", absl::CHexEscape(config.default_policy)},
            {"backend", config.backend},
            {"uid_range", absl::StrCat(config.uid_first, ",", config.uid_count)},
            {"kills_per_minute", absl::StrCat(config.kills_per_minute)},
            {"made_ahead", config.made_ahead ? "true" : "false"},
            {"agent_wait_seconds", absl::StrCat(config.agent_wait_seconds)},
            {"memory_max_mib", absl::StrCat(config.memory_max_mib)},
            {"swap_max_mib", absl::StrCat(config.swap_max_mib)},
            {"pids_max", absl::StrCat(config.pids_max)},
            {"cpu_max_percent", absl::StrCat(config.cpu_max_percent)},
            {"metrics", config.metrics.listen},
            {"api", absl::CHexEscape(config.api.Text())},
            {"evidence", absl::CHexEscape(config.evidence.Text())},
            {"kubernetes", absl::CHexEscape(config.kubernetes.Text())},
            {"rules", absl::CHexEscape(config.rules.Text())},
            {"events", absl::CHexEscape(config.events.Text())}};
}

}  // namespace

void WriteConfigRecord(const Config& config) {
    const std::string text = absl::StrJoin(Values(config), "\n", absl::PairFormatter(" ")) + "\n";
    if (!ReplaceFile(PathOf(config), text, 0600).ok()) (void)unlink(PathOf(config).c_str());
}

std::vector<std::string> DifferingKeys(const Config& config) {
    const StatusOr<std::string> text = ReadFile(PathOf(config), kMaxRecordBytes);
    if (!text.ok()) return {};
    std::map<std::string, std::string> recorded;
    for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty()))
        recorded.insert(absl::StrSplit(line, absl::MaxSplits(' ', 1)));
    std::vector<std::string> keys;
    for (const auto& [key, value] : Values(config)) {
        const auto found = recorded.find(key);
        if (found == recorded.end() || found->second != value) keys.push_back(key);
    }
    return keys;
}

}  // namespace stockade::cmd
