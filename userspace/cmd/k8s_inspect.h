// `stockade k8s inspect`: the evidence of a namespace, by kubectl, in a folder named by the time.
#pragma once

#include <string>

namespace stockade::cmd {

struct InspectNamespace {
    std::string space;
    std::string folder = ".evidence";  // in which the folder of this time is made
    std::string kubectl = "kubectl";
    std::string agents = "stockade";   // where the agent's pods are
    bool json = false;
};

// 0 all is there; 1 something could not be had, which the manifest names; 125 there is no folder.
int InspectToFolder(const InspectNamespace& wanted);

}  // namespace stockade::cmd
