#include "userspace/cmd/shown_command.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/decode/redact.h"

namespace stockade::cmd {

std::vector<std::string> WithoutSecrets(const std::vector<std::string>& argv) {
    // As the arguments of an event: there the value may be the argument behind the option.
    v1::Event event;
    for (const std::string& argument : argv) event.mutable_exec()->add_argv(argument);
    (void)decode::Redactor::Default().Redact(&event);  // how many there were nobody asks
    return {event.exec().argv().begin(), event.exec().argv().end()};
}

std::string ShownCommand(const sandbox::ProcessEvidence& process) {
    std::vector<std::string> argv = absl::StrSplit(process.command, '\0');
    if (process.command.size() >= sandbox::kMaxCommandBytes) argv.back() = "...";
    return absl::StrJoin(WithoutSecrets(argv), " ");
}

}  // namespace stockade::cmd
