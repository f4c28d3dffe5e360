// `stockade freeze`, `thaw`, `isolate` and `release`.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddControlCommands(CLI::App& app, ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
