// `stockade run`.
#pragma once

#include "userspace/cmd/client.h"

namespace CLI {
class App;
}

namespace stockade::cmd {

// Adds the subcommand. `exit_code` is set when it has run.
void AddRunCommand(CLI::App& app, const ClientOptions& client, int& exit_code);

// Complains of words that make no run, and says so in the files of --result.
int ComplainOfWords(const ClientOptions& client, const Status& why);

}  // namespace stockade::cmd
