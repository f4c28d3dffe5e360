// `stockade record`: the design record of a sandbox that runs, or of what a policy and a contract would make.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddRecordCommand(CLI::App& app, ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
