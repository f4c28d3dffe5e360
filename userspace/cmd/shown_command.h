// Command lines as clients, state files and results have them: secrets replaced, as in events.
#pragma once

#include <string>
#include <vector>

#include "userspace/sandbox/evidence.h"

namespace stockade::cmd {

std::vector<std::string> WithoutSecrets(const std::vector<std::string>& argv);
// With spaces. What was cut in the middle of an argument could be half of a secret, and none that a pattern knows: that one is left out.
std::string ShownCommand(const sandbox::ProcessEvidence& process);

}  // namespace stockade::cmd
