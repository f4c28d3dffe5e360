// `stockade verify`: whether the events that arrived are all that were exported.
#pragma once

namespace CLI {
class App;
}

namespace stockade::cmd {

// Adds the subcommand. `exit_code` is set when it has run: 0 every chain is complete; 1 something is missing,
// changed, double or out of order; 2 nothing is, but a chain is open or losses were told; 125 a file cannot be read.
void AddVerifyCommand(CLI::App& app, int& exit_code);

}  // namespace stockade::cmd
