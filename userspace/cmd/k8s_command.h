// `stockade k8s doctor`: what in a cluster's objects would make the pod of a sandbox unenforceable.
#pragma once

namespace CLI {
class App;
}

namespace stockade::cmd {

// Adds the subcommands. `exit_code` is set when one has run.
void AddK8sCommand(CLI::App& app, int& exit_code);

}  // namespace stockade::cmd
