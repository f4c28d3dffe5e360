#include "userspace/cmd/completion.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/agent_version.h"
#include "userspace/cmd/client.h"

namespace stockade::cmd {
namespace {

std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    return names;
}

// "--policy", "-p" ... of one command.
std::vector<std::string> FlagsOf(const CLI::App& app) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : app.get_options()) {
        for (std::string& name : NamesOf(*option)) flags.push_back(std::move(name));
    }
    return flags;
}

// What an option takes, where that is one of some words: "TEXT:{json,text}" is how CLI11 calls it.
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t open = type.find('{'), close = type.find('}', open == type.npos ? 0 : open);
    if (open == type.npos || close == type.npos) return {};
    return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
}

std::vector<std::string> WordsAfter(const CLI::App& app) {
    std::vector<std::string> words = FlagsOf(app);
    for (const CLI::App* sub : Subcommands(app)) words.push_back(sub->get_name());
    return words;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string ShellQuoted(const std::string& text) {
    return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// roff: a leading dot or quote starts a request, a backslash an escape.
std::string Roff(const std::string& text) {
    std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
    out = absl::StrReplaceAll(out, {{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
    return out;
}

void AddManSection(const CLI::App& app, const std::string& path, std::string* out) {
    absl::StrAppend(out, ".SS ", Roff(path), "\n", Roff(app.get_description()), "\n");
    for (const CLI::Option* option : app.get_options()) {
        absl::StrAppend(out, ".TP\n.B ", Roff(option->get_name(false, true)), "\n",
                        Roff(option->get_description()), "\n");
    }
    for (const CLI::App* sub : Subcommands(app))
        AddManSection(*sub, absl::StrCat(path, " ", sub->get_name()), out);
}

// "COMMAND FLAG" -> the words that may follow, for each flag that has some.
void AddValues(const CLI::App& app, const std::string& path, std::map<std::string, std::string>* out) {
    for (const CLI::Option* option : app.get_options()) {
        const std::vector<std::string> values = ChoicesOf(*option);
        if (values.empty()) continue;
        for (const std::string& name : NamesOf(*option))
            (*out)[absl::StrCat(path, " ", name)] = absl::StrJoin(values, " ");
    }
    for (const CLI::App* sub : Subcommands(app))
        AddValues(*sub, absl::StrCat(path, " ", sub->get_name()), out);
}

void AddCases(const CLI::App& app, const std::string& path, std::string* out) {
    absl::StrAppend(out, "        ", ShellQuoted(path),
                    ") words=", ShellQuoted(absl::StrJoin(WordsAfter(app), " ")), " ;;\n");
    for (const CLI::App* sub : Subcommands(app))
        AddCases(*sub, absl::StrCat(path, " ", sub->get_name()), out);
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
    std::string cases, after;
    AddCases(app, "stockade", &cases);
    std::map<std::string, std::string> values;
    AddValues(app, "stockade", &values);
    for (const auto& [flag, words] : values) {
        absl::StrAppend(&after, "        ", ShellQuoted(flag), ") COMPREPLY=($(compgen -W ",
                        ShellQuoted(words), " -- \"$cur\")); return ;;\n");
    }
    return absl::StrCat(
        "# bash completion of stockade; eval \"$(stockade completion bash)\"\n"
        "_stockade() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=stockade words= i\n"
        "    [[ $cur == = ]] && cur=\n"
        "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        [[ ${COMP_WORDS[i]} == -- ]] && { COMPREPLY=($(compgen -c -f -- \"$cur\")); return; }\n"
        "        [[ ${COMP_WORDS[i]} == -* ]] || path+=\" ${COMP_WORDS[i]}\"\n"
        "    done\n"
        "    while :; do\n"
        "        case $path in\n",
        cases,
        "        esac\n"
        "        [[ -n $words || $path != *' '* ]] && break\n"
        "        path=${path% *}\n"
        "    done\n"
        "    case \"$path $prev\" in\n",
        after,
        "    esac\n"
        "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
        "    [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
        "}\n"
        "complete -o filenames -F _stockade stockade\n");
}

std::string ZshCompletion(const CLI::App& app) {
    std::string out =
        "#compdef stockade\n"
        "_stockade() {\n"
        "    local -a commands flags\n"
        "    commands=(\n";
    for (const CLI::App* sub : Subcommands(app)) {
        absl::StrAppend(&out, "        ",
                        ShellQuoted(absl::StrCat(sub->get_name(), ":", FirstLine(sub->get_description()))),
                        "\n");
    }
    absl::StrAppend(&out,
                    "    )\n    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
                    "    case \"$words[2] $words[CURRENT-1]\" in\n");
    for (const CLI::App* sub : Subcommands(app)) {
        std::map<std::string, std::string> values, flags;
        AddValues(*sub, "", &values);
        // Of a command below it the last word is the flag.
        for (const auto& [flag, words] : values) flags[flag.substr(flag.rfind(' ') + 1)] = words;
        for (const auto& [flag, words] : flags) {
            absl::StrAppend(&out, "        ", ShellQuoted(absl::StrCat(sub->get_name(), " ", flag)),
                            ") compadd -- ", words, "; return ;;\n");
        }
    }
    absl::StrAppend(&out, "    esac\n    case $words[2] in\n");
    for (const CLI::App* sub : Subcommands(app)) {
        absl::StrAppend(&out, "        ", sub->get_name(), ") flags=(", absl::StrJoin(WordsAfter(*sub), " "),
                        ") ;;\n");
    }
    return absl::StrCat(out, "    esac\n    compadd -- $flags\n    _files\n}\n_stockade \"$@\"\n");
}

std::string FishCompletion(const CLI::App& app) {
    std::string out = "# fish completion of stockade\n";
    for (const CLI::App* sub : Subcommands(app)) {
        absl::StrAppend(&out, "complete -c stockade -n __fish_use_subcommand -f -a ", sub->get_name(), " -d ",
                        ShellQuoted(FirstLine(sub->get_description())), "\n");
        for (const CLI::Option* option : sub->get_options()) {
            const std::vector<std::string> values = ChoicesOf(*option);
            for (const std::string& name : option->get_lnames()) {
                absl::StrAppend(&out, "complete -c stockade -n '__fish_seen_subcommand_from ",
                                sub->get_name(), "' -l ", name);
                if (!option->get_snames().empty())
                    absl::StrAppend(&out, " -s ", option->get_snames().front());
                if (!values.empty())
                    absl::StrAppend(&out, " -x -a ", ShellQuoted(absl::StrJoin(values, " ")));
                absl::StrAppend(&out, " -d ", ShellQuoted(option->get_description()), "\n");
            }
        }
        for (const CLI::App* below : Subcommands(*sub)) {
            absl::StrAppend(&out, "complete -c stockade -n '__fish_seen_subcommand_from ", sub->get_name(),
                            "' -a ", below->get_name(), " -d ",
                            ShellQuoted(FirstLine(below->get_description())), "\n");
        }
    }
    return out;
}

std::string ManPage(const CLI::App& app) {
    std::string out =
        absl::StrCat(".TH STOCKADE 1 \"\" \"stockade ", kVersion, "\"\n.SH NAME\n",
                     "stockade \\- run untrusted tools under in\\-kernel allowlists\n.SH SYNOPSIS\n",
                     ".B stockade\n.I COMMAND\n[flags]\n.SH DESCRIPTION\n.nf\n", Roff(app.get_description()),
                     "\n.fi\n.SH COMMANDS\n");
    for (const CLI::App* sub : Subcommands(app))
        AddManSection(*sub, absl::StrCat("stockade ", sub->get_name()), &out);
    return out;
}

void AddCompletionCommand(CLI::App& app, int& exit_code) {
    auto shell = std::make_shared<std::string>();
    CLI::App* completion =
        app.add_subcommand("completion", "Print completions for a shell, or the manual page.");
    completion->add_option("SHELL", *shell, "bash, zsh, fish or man")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
    completion->callback([&app, &exit_code, shell] {
        const std::string text = *shell == "bash"   ? BashCompletion(app)
                                 : *shell == "zsh"  ? ZshCompletion(app)
                                 : *shell == "fish" ? FishCompletion(app)
                                                    : ManPage(app);
        const Status status = WriteAll(STDOUT_FILENO, text);
        exit_code = status.ok() ? 0 : Complain(status);
    });
}

}  // namespace stockade::cmd
