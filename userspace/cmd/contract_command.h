// `stockade contract check|explain|init`.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

void AddContractCommand(CLI::App& app, const ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
