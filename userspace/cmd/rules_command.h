// `stockade rules check | test | replay | explain | list`.
#pragma once

namespace CLI {
class App;
}

namespace stockade::cmd {

struct ClientOptions;

// Adds the subcommand. `exit_code` is set when it has run: 0 ok, 1 findings, 2 the question could not be answered.
void AddRulesCommand(CLI::App& app, const ClientOptions& client, int& exit_code);

}  // namespace stockade::cmd
