// The sections `metrics` and `api` of the configuration: who may look at the agent, and who may ask it for something.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace YAML {
class Node;
}

namespace stockade::cmd {

struct MetricsConfig {
    std::string listen = "127.0.0.1:9464";  // "off" = nobody
    bool named = false;                     // by the configuration: a transient agent listens only then

    bool on() const { return listen != "off"; }
};

struct ApiConfig {
    // Its members may start sandboxes under these policies, and see and end their own. Root may all. The group need not exist.
    std::string group = "stockade";
    std::vector<std::string> policies;  // by name; none = root alone may start anything
    bool any_session =
        false;  // members may claim any session label; else each has a name space of its own (ADR 10)

    std::string Text() const;  // on one line
};

// Errors name file, line and the nearest key. Both throw what yaml-cpp throws.
Status ParseMetrics(const std::string& path, const YAML::Node& node, MetricsConfig* metrics);
Status ParseApi(const std::string& path, const YAML::Node& node, ApiConfig* api);

}  // namespace stockade::cmd
