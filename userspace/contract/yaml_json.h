// A part of a YAML document that is JSON in meaning, as JSON: the schema of a result.
#pragma once

#include <string>

#include "userspace/policy/yaml_tree.h"

namespace stockade::contract {

// Words without quotes that JSON has a value for are that value; keys are texts; a key that stands twice stays there twice, so that who
// reads the JSON refuses it.
std::string JsonOfYaml(const policy::YamlNode& node);

}  // namespace stockade::contract
