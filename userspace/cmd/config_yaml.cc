#include "userspace/cmd/config_yaml.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {

std::string At(const std::string& path, const YAML::Node& node) {
    const YAML::Mark mark = node.Mark();
    return mark.is_null() ? path : absl::StrCat(path, ":", mark.line + 1, ":", mark.column + 1);
}

Status Wrong(const std::string& at, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(at, ": ", what));
}

Status CheckKeys(const std::string& path, absl::string_view what, const YAML::Node& node,
                 const std::vector<std::string>& known) {
    if (!node.IsMap()) return Wrong(At(path, node), absl::StrCat(what, " takes keys and values"));
    std::map<std::string, int> lines;
    for (const auto& entry : node) {
        const std::string key = entry.first.as<std::string>();
        const auto [before, added] = lines.emplace(key, entry.first.Mark().line + 1);
        if (!added)
            return Wrong(At(path, entry.first),
                         absl::StrCat("duplicate key ", key, ", first on line ", before->second));
        if (!known.empty() && std::count(known.begin(), known.end(), key) == 0)
            return Wrong(At(path, entry.first),
                         absl::StrCat("unknown key ", key, " in ", what, policy::Suggest(key, known)));
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
