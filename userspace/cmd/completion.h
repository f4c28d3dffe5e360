// `stockade completion bash|zsh|fish|man`: made from the commands themselves, so that
// they cannot be behind.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace stockade::cmd {

// Call it last: it describes the subcommands that are there.
void AddCompletionCommand(CLI::App& app, int& exit_code);

std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);
std::string ManPage(const CLI::App& app);

}  // namespace stockade::cmd
