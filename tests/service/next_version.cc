// The agent of the release after this one, for the upgrade: its name is all that differs.
#include "userspace/cmd/agent_version.h"

namespace stockade::cmd {

const char kVersion[] = "0.1.0-next";

}  // namespace stockade::cmd
