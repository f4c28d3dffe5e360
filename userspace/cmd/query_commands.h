// `stockade ps`, `inspect`, `kill`, `events`, `version` and `completion`.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddQueryCommands(CLI::App& app, ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
