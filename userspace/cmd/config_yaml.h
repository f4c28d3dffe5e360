// What the sections of the configuration share when they are read.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

// "file:line:column".
std::string At(const std::string& path, const YAML::Node& node);
Status Wrong(const std::string& at, absl::string_view what);
// Of a map: each key once, and one of `known` where that is not empty.
Status CheckKeys(const std::string& path, absl::string_view what, const YAML::Node& node,
                 const std::vector<std::string>& known);

}  // namespace stockade::cmd
