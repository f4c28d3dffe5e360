#include "userspace/contract/call.h"

#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/sha256.h"
#include "userspace/contract/refusal.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

using policy::Reader;

// Lengths before texts: no two lists are one text.
void Add(std::string* to, absl::string_view text) { absl::StrAppend(to, text.size(), ":", text, ","); }

std::string Whole(const std::vector<std::string>& list) {
    std::string out;
    Add(&out, absl::StrCat(list.size()));
    for (const std::string& text : list) Add(&out, text);
    return out;
}

// Arguments are bytes: one that is no UTF-8 must not keep a pattern from what stands behind it.
re2::RE2::Options Bytewise() {
    re2::RE2::Options options(re2::RE2::Quiet);
    options.set_encoding(re2::RE2::Options::EncodingLatin1);
    options.set_dot_nl(true);
    return options;
}

bool IsPlain(const std::string& path) {
    if (path.empty() || path.front() != '/') return false;
    const std::vector<absl::string_view> parts = absl::StrSplit(absl::string_view(path).substr(1), '/');
    return std::none_of(parts.begin(), parts.end(), [](absl::string_view part) { return part.empty() || part == "." || part == ".."; });
}

}  // namespace

CallDigests DigestsOf(const Call& call) {
    CallDigests out;
    out.contract = call.contract_sha256;
    out.policy = call.policy_sha256;
    std::vector<std::string> env = call.env;
    std::sort(env.begin(), env.end());
    out.arguments = Sha256Hex(absl::StrCat(Whole(call.argv), Whole(env), Whole({call.cwd})));
    std::string inputs;
    for (const InputFile& file : call.inputs) {
        Add(&inputs, file.path);
        Add(&inputs, absl::StrCat(file.bytes));
        Add(&inputs, file.sha256);
    }
    out.inputs = Sha256Hex(inputs);
    out.all = Sha256Hex(absl::StrCat("stockade-call-1\n", out.contract, "\n", out.arguments, "\n", out.inputs, "\n", out.policy, "\n"));
    return out;
}

StatusOr<std::string> FindProgram(const std::string& word) {
    if (absl::StrContains(word, '/')) {
        if (IsPlain(word)) return word;
        return Refused("contract.command", absl::StrCat("the command ", Reader::Printable(word), " is no plain absolute path (no '.', '..' or empty component)"));
    }
    for (const absl::string_view dir : absl::StrSplit(kPath, ':')) {
        const std::string path = absl::StrCat(dir, "/", word);
        if (!word.empty() && access(path.c_str(), X_OK) == 0) return path;
    }
    return Refused("contract.command", absl::StrCat("there is no program ", Reader::Printable(word), " in ", kPath));
}

Status CheckCall(const ToolContract& contract, const std::vector<std::string>& argv) {
    if (contract.tool_class == ToolClass::kInProcess) {
        return Refused("contract.class", absl::StrCat("the tool ", contract.tool, " is of class in-process: it runs in its caller, and no sandbox is started for it"));
    }
    const std::vector<absl::string_view> parts = policy::SplitPath(argv.at(0));
    const bool allowed = IsPlain(argv[0]) && std::any_of(contract.commands.begin(), contract.commands.end(), [&](const policy::Entry& entry) {
        const auto pattern = policy::ParsePattern(entry.text);
        return pattern.ok() && policy::MatchPattern(*pattern, parts);
    });
    if (!allowed) {
        return Refused("contract.command", absl::StrCat("the command ", Reader::Printable(argv[0]), " is not in command.allow of the contract ", contract.name, ": ",
                                                        absl::StrJoin(contract.commands, ", ", [](std::string* out, const policy::Entry& e) { out->append(e.text); })));
    }
    // In one argument, or over several: `rm`, `-rf`.
    std::vector<std::string> texts(argv.begin() + 1, argv.end());
    texts.push_back(absl::StrJoin(texts, " "));
    for (const policy::Entry& entry : contract.deny_arguments) {
        const re2::RE2 pattern(entry.text, Bytewise());
        for (const std::string& text : texts) {
            if (pattern.ok() && !re2::RE2::PartialMatch(text, pattern)) continue;
            return Refused("contract.argument", absl::StrCat("an argument matches '", entry.text, "' (", policy::ToString(entry.at), ") of deny_arguments: ", Reader::Printable(text)));
        }
    }
    return absl::OkStatus();
}

}  // namespace stockade::contract
