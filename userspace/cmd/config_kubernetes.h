// The section `kubernetes` of the configuration: the plugin of the container runtime, and which policy a pod gets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace YAML {
class Node;
}

namespace stockade::cmd {

// Keys of the pod's labels that become the sandbox's own.
struct PodLabelKeys {
    std::string session = "stockade.dev/session";
    std::string tool = "stockade.dev/tool";
    std::string trace = "stockade.dev/trace";
    std::string tool_class = "stockade.dev/tool-class";
};

struct NamespaceConfig {
    std::string policy;                 // of pods that name none and that none selects; empty = deny-all
    std::vector<std::string> policies;  // that its pods may name, or be selected for, beside those of all namespaces; "*" = any
};

struct KubernetesConfig {
    std::string nri;           // the runtime's socket for plugins; empty = the agent is none
    std::string index = "10";  // place among the runtime's plugins: two digits
    PodLabelKeys labels;
    std::vector<std::string> policies;                  // as above, in every namespace
    std::map<std::string, NamespaceConfig> namespaces;  // whose pods are all sandboxes
    std::vector<std::string> resolvers;                 // the cluster's, for policies that name none
    bool kill_unprotected = false;  // containers that started while no plugin was connected

    bool on() const { return !nri.empty(); }
    std::string Text() const;  // on one line
};

// Errors name file, line and the nearest key. Throws what yaml-cpp throws.
Status ParseKubernetes(const std::string& path, const YAML::Node& node, KubernetesConfig* kubernetes);

}  // namespace stockade::cmd
