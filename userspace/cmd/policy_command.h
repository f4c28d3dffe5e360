// `stockade policy check | explain | test | diff`.
#pragma once

namespace CLI {
class App;
}

namespace stockade {
namespace cmd {
struct ClientOptions;
}

// Adds the subcommand. `exit_code` is set when it has run: 0 ok (explain: all allowed, diff: no
// difference), 1 findings, 2 the question could not be answered.
void AddPolicyCommand(CLI::App& app, const cmd::ClientOptions& client, int& exit_code);

}  // namespace stockade
