// `stockade run`.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

// Adds the subcommand. `exit_code` is set when it has run.
void AddRunCommand(CLI::App& app, const ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
