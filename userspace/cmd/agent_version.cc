#include "userspace/cmd/agent_version.h"

namespace stockade::cmd {

const char kVersion[] = "0.1.0";

}  // namespace stockade::cmd
