// `stockade doctor`: what is enforced here, what only seen, what not, why, and what to change.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade {

// Adds the subcommand. `client` must outlive the parse. `exit_code` is set when it has run: 0 ok, 1 something required is
// missing, 125 the probe itself failed.
void AddDoctorCommand(CLI::App& app, const cmd::ClientOptions& client, int& exit_code);

}  // namespace stockade
