#include "userspace/cmd/control_commands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {
namespace {

struct ControlWord {
    const char* action;
    const char* done;
    const char* help;
};
constexpr ControlWord kControlWords[] = {
    {"freeze", "frozen", "Stop all of a sandbox where it is, for a look at it; thaw lets it go on."},
    {"thaw", "thawed", "Let a frozen sandbox go on."},
    {"isolate", "isolated",
     "Take a sandbox's network away, of connections that stand too; the rest of its policy holds."},
    {"release", "released", "Give a sandbox what `isolate`, or the response of a rule, has taken from it."},
};

Status AskControl(const ClientOptions& client, const ControlWord& word, const std::string& id,
                  const std::string& reason) {
    SK_ASSIGN_OR_RETURN(api::Channel channel, ConnectAgent(client));
    api::Message question;
    question.mutable_control()->set_id(id);
    question.mutable_control()->set_action(word.action);
    question.mutable_control()->set_reason(reason);
    SK_RETURN_IF_ERROR(Ask(channel, question).status());
    return WriteAll(STDOUT_FILENO, absl::StrCat(id, " ", word.done, "\n"));
}

}  // namespace

void AddControlCommands(CLI::App& app, ClientOptions& client, int& exit_code) {
    for (const ControlWord& word : kControlWords) {
        auto id = std::make_shared<std::string>();
        auto reason = std::make_shared<std::string>();
        CLI::App* command = app.add_subcommand(word.action, word.help);
        command->add_option("SANDBOX", *id, "Its id, or the beginning of it")->required();
        command->add_option("--reason", *reason, "Written into the event, which also says who asked");
        command->callback([&client, &exit_code, &word, id, reason] {
            const Status status = AskControl(client, word, *id, *reason);
            exit_code = status.ok() ? 0 : Complain(status);
        });
    }
}

}  // namespace stockade::cmd
