// `stockade gc`: what killed launchers have left, removed or only shown.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddGcCommand(CLI::App& app, ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
