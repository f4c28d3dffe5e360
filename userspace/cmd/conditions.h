// What holds of a sandbox, or of the agent, in the form that Kubernetes gives to it: type, status, reason, message.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/sandbox/registry.h"

namespace stockade::cmd {

struct Condition {
    std::string type;     // Ready, Enforced, Degraded, ...
    bool holds = false;   // "True" or "False"
    std::string reason;   // one word, of a table of ours
    std::string message;  // a sentence, where there is more to say
};

// Of a sandbox: Ready (it runs, and its coverage is attested), Enforced (what its policy refuses is refused), Degraded (something
// is weaker than it should be), and Adopted where an earlier agent started it.
std::vector<Condition> SandboxConditions(const sandbox::Sandbox& sandbox, absl::string_view backend);

// The one that a list has room for: "Ready", or what is wrong as "Degraded/NoLandlock".
std::string Headline(const std::vector<Condition>& conditions);

}  // namespace stockade::cmd
