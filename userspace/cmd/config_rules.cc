#include "userspace/cmd/config_rules.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/cmd/config_yaml.h"

namespace stockade::cmd {
namespace {

const std::vector<std::string>& Keys() {
    static const auto* const keys =
        new std::vector<std::string>{"dirs", "disable", "dry_run", "enabled", "max_events", "max_groups"};
    return *keys;
}

Status ReadList(const std::string& path, const std::string& key, const YAML::Node& node,
                std::vector<std::string>* list) {
    if (!node.IsSequence())
        return Wrong(At(path, node), absl::StrCat("rules.", key, " takes a list: [a, b]"));
    list->clear();
    for (const YAML::Node& item : node) {
        if (!item.IsScalar() || item.Scalar().empty())
            return Wrong(At(path, item), absl::StrCat("rules.", key, " takes a list of texts"));
        if (key == "dirs" && item.Scalar().front() != '/')
            return Wrong(At(path, item),
                         absl::StrCat("rules.dirs takes absolute paths, not '", item.Scalar(), "'"));
        list->push_back(item.Scalar());
    }
    return absl::OkStatus();
}

// The state may be made smaller than what is compiled in, which is what the tests measured.
Status ReadBound(const std::string& path, const std::string& key, const YAML::Node& node, uint64_t most,
                 uint64_t* out) {
    if (node.IsScalar() && YAML::convert<uint64_t>::decode(node, *out) && *out > 0 && *out <= most)
        return absl::OkStatus();
    return Wrong(At(path, node), absl::StrCat("rules.", key, " takes a whole number from 1 to ", most));
}

Status ReadSwitch(const std::string& path, const std::string& key, const YAML::Node& node, bool* out) {
    if (node.IsScalar() && YAML::convert<bool>::decode(node, *out)) return absl::OkStatus();
    return Wrong(At(path, node), absl::StrCat("rules.", key, " takes true or false"));
}

}  // namespace

std::string RulesConfig::Text() const {
    return absl::StrCat(enabled ? "on" : "off", dry_run ? " dry " : " ", max_groups, " ", max_events, " [",
                        absl::StrJoin(dirs, " "), "] [", absl::StrJoin(disable, " "), "]");
}

Status ParseRulesConfig(const std::string& path, const YAML::Node& node, RulesConfig* rules) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "rules", node, Keys()));
    for (const auto& entry : node) {
        const std::string key = entry.first.as<std::string>();
        Status status;
        if (key == "enabled") {
            status = ReadSwitch(path, key, entry.second, &rules->enabled);
        } else if (key == "dry_run") {
            status = ReadSwitch(path, key, entry.second, &rules->dry_run);
        } else if (key == "dirs") {
            status = ReadList(path, key, entry.second, &rules->dirs);
        } else if (key == "disable") {
            status = ReadList(path, key, entry.second, &rules->disable);
        } else if (key == "max_groups") {
            status = ReadBound(path, key, entry.second, detect::kMaxGroups, &rules->max_groups);
        } else {  // max_events: CheckKeys lets no other key pass
            status = ReadBound(path, key, entry.second, detect::kMaxStateEvents, &rules->max_events);
        }
        SK_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
