// Words of a command line that are no command and no flag: what they may have been meant to be.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace stockade::cmd {

// "help run" becomes "run --help", and "--timeout=" a flag with an empty value: CLI11 would take the
// next word for it. `args` are without the program's name.
std::vector<std::string> Tidied(const CLI::App& app, const std::vector<std::string>& args);

// `command` is the first word, with nothing before it but flags of `app` that take a value.
bool IsCommand(const CLI::App& app, const std::string& command, const std::vector<std::string>& args);

// kInvalidArgument when a command is named that `app` does not have, at either level.
Status CheckCommandWords(const CLI::App& app, const std::vector<std::string>& args);

// The values of `flag` before the words of a sandbox's command, also where other flags are wrong. `separated`:
// the words end where "--" was; else they end at the first one that is neither a flag nor surely a value.
std::vector<std::string> ValuesOf(const CLI::App& app, const std::string& command, const std::string& flag,
                                  const std::vector<std::string>& args, bool separated);

// What was wrong, with the command that it was wrong for, the nearest flag and the help to read.
std::string ParseComplaint(const CLI::App& app, const CLI::ParseError& error);

// "unknown flag --polcy; did you mean '--policy'?"
std::string UnknownFlag(const CLI::App& app, const std::string& word);

}  // namespace stockade::cmd
