// `stockade dns meter`.
#pragma once

namespace CLI {
class App;
}

namespace stockade {

// Adds the subcommand. `exit_code` is set when it has run: 0 nothing would be blocked, 1 something
// would, 2 the file could not be read to its end.
void AddDnsCommand(CLI::App& app, int& exit_code);

}  // namespace stockade
