#include "userspace/cmd/command_words.h"

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {
namespace {

std::vector<std::string> CommandsOf(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* sub :
         app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); }))
        names.push_back(sub->get_name());
    return names;
}

const CLI::App* Find(const CLI::App& app, const std::string& name) {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (sub->get_name() == name) return sub;
    }
    return nullptr;
}

// A flag that has its value in the next word.
bool TakesNext(const CLI::App& app, const std::string& word) {
    if (absl::StrContains(word, '=')) return false;
    const CLI::Option* option = app.get_option_no_throw(word);
    return option != nullptr && option->get_expected_min() > 0 && option->get_type_size() > 0;
}

std::string PathOf(const CLI::App& app) {
    const CLI::App* parent = app.get_parent();
    return parent == nullptr ? app.get_name() : absl::StrCat(PathOf(*parent), " ", app.get_name());
}

// The innermost command that was recognised.
const CLI::App* Innermost(const CLI::App* app) {
    for (const CLI::App* sub : app->get_subcommands()) {
        if (!sub->get_name().empty()) return Innermost(sub);
    }
    return app;
}

std::string Nearest(const std::string& word, const std::vector<std::string>& words) {
    const std::string nearest = policy::NearestWord(word, words);
    return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

}  // namespace

std::vector<std::string> Tidied(const CLI::App& app, const std::vector<std::string>& args) {
    const CLI::App* at = &app;
    std::vector<std::string> out;
    bool help = false;
    for (size_t i = 0; i < args.size(); ++i) {
        const std::string& word = args[i];
        if (absl::StartsWith(word, "-")) {
            if (absl::StartsWith(word, "--") && word.find('=') == word.size() - 1) {
                out.push_back(word.substr(0, word.size() - 1));
                out.emplace_back();
                continue;
            }
            out.push_back(word);
            if (TakesNext(*at, word) && i + 1 < args.size()) out.push_back(args[++i]);
            continue;
        }
        if (at == &app && word == "help" && !help) {
            help = true;
            continue;
        }
        const CLI::App* next = Find(*at, word);
        if (next == nullptr) {
            // From here on the words may be those of the sandbox's command.
            out.insert(out.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
            break;
        }
        out.push_back(word);
        at = next;
    }
    if (help) out.emplace_back("--help");
    return out;
}

bool IsCommand(const CLI::App& app, const std::string& command, const std::vector<std::string>& args) {
    for (size_t i = 0; i < args.size(); ++i) {
        if (!absl::StartsWith(args[i], "-")) return args[i] == command;
        const CLI::Option* option = app.get_option_no_throw(args[i].substr(0, args[i].find('=')));
        if (option == nullptr || option->get_expected_min() == 0) return false;
        i += TakesNext(app, args[i]) ? 1 : 0;
    }
    return false;
}

Status CheckCommandWords(const CLI::App& app, const std::vector<std::string>& args) {
    const CLI::App* at = &app;
    for (size_t i = 0; i < args.size(); ++i) {
        if (CommandsOf(*at).empty()) return absl::OkStatus();
        if (absl::StartsWith(args[i], "-")) {
            i += TakesNext(*at, args[i]) ? 1 : 0;
            continue;
        }
        const CLI::App* next = Find(*at, args[i]);
        if (next == nullptr) {
            const std::string path = at == &app ? "" : absl::StrCat(at->get_name(), ": ");
            return absl::InvalidArgumentError(absl::StrCat(path, "there is no command ", args[i],
                                                           policy::Suggest(args[i], CommandsOf(*at)),
                                                           " (see ", PathOf(*at), " --help)"));
        }
        at = next;
    }
    return absl::OkStatus();
}

std::vector<std::string> ValuesOf(const CLI::App& app, const std::string& command, const std::string& flag,
                                  const std::vector<std::string>& args, bool separated) {
    std::vector<std::string> values;
    const CLI::App* at = &app;
    bool unsure = false;  // the word before was a flag that is not known: this one may be its value
    for (size_t i = 0; i < args.size(); ++i) {
        const std::string& word = args[i];
        if (absl::StartsWith(word, "-")) {
            if (at != &app && absl::StartsWith(word, flag + "="))
                values.push_back(word.substr(flag.size() + 1));
            if (at != &app && word == flag && i + 1 < args.size()) values.push_back(args[i + 1]);
            i += TakesNext(*at, word) ? 1 : 0;
            unsure = at->get_option_no_throw(word.substr(0, word.find('='))) == nullptr;
        } else if (at == &app) {
            at = Find(app, command);
            if (word != command || at == nullptr) return {};
        } else if (!unsure || !separated) {
            break;
        } else {
            unsure = false;
        }
    }
    return values;
}

std::string UnknownFlag(const CLI::App& app, const std::string& word) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    const std::string flag = word.substr(0, word.find('='));
    return absl::StrCat("unknown flag ", word, Nearest(flag, flags));
}

std::string ParseComplaint(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App& inner = *Innermost(&app);
    std::string what = error.what();
    const std::vector<std::string> left = app.remaining(true);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) {
        what = absl::StartsWith(left.front(), "-") ? UnknownFlag(inner, left.front())
                                                   : absl::StrCat("one word too many: ", left.front());
    }
    const std::string name =
        &inner == &app ? "" : absl::StrCat(PathOf(inner).substr(app.get_name().size() + 1), ": ");
    return absl::StrCat(name, what, " (see ", PathOf(inner), " --help)");
}

}  // namespace stockade::cmd
