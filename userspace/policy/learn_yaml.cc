// A proposal as a document that a person reads before it holds.
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/model/text.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/learn.h"

namespace stockade::policy {
namespace {

// Of what was seen, so many of each kind become tests of the document.
constexpr size_t kTestsOfAKind = 5;
constexpr size_t kCommentColumn = 52;
// A pattern such as /in/** must not open what somebody puts there tomorrow.
constexpr char kDeny[] =
    "    deny: [\"**/.ssh/**\", \"**/.aws/**\", \"**/.kube/**\", \"**/.gnupg/**\", \"**/.netrc\", \"**/.git-credentials\"]\n";

// As YAML takes it: bare where that is safe, else in double quotes.
std::string Scalar(absl::string_view text) {
    bool plain = !text.empty() && text[0] == '/';
    for (const unsigned char c : text) plain = plain && (absl::ascii_isalnum(c) || absl::StrContains("/._-+@=~*", static_cast<char>(c)));
    if (plain) return std::string(text);
    std::string out = "\"";
    for (const char c : text) absl::StrAppend(&out, c == '"' || c == '\\' ? "\\" : "", std::string(1, c));
    return out + "\"";
}

// Events come from files: what stands behind a "#" must not begin another line.
std::string Comment(absl::string_view text) {
    std::string out;
    (void)model::AppendEscaped(text, &out);  // whether anything changed does not matter here
    return out;
}

std::string Why(const Evidence& evidence) {
    return Comment(absl::StrCat(evidence.count, evidence.count == 1 ? " time" : " times", evidence.program.empty() ? "" : ", by " + evidence.program,
                                ", first ", evidence.event));
}

void AppendList(absl::string_view key, const std::vector<LearnedLine>& lines, bool flow, std::string* out) {
    if (lines.empty()) return;
    absl::StrAppend(out, "    ", key, ":\n");
    for (const LearnedLine& line : lines) {
        const std::string item = absl::StrCat("      - ", flow ? line.text : Scalar(line.text));
        absl::StrAppend(out, item, std::string(item.size() < kCommentColumn ? kCommentColumn - item.size() : 1, ' '), "# ", Why(line.evidence), "\n");
    }
}

void AppendPorts(absl::string_view key, const std::set<uint16_t>& ports, std::string* out) {
    if (!ports.empty()) absl::StrAppend(out, "    ", key, ": [", absl::StrJoin(ports, ", "), "]\n");
}

void AppendTests(const Proposal& proposal, std::string* out) {
    std::map<CaseKind, size_t> count;
    std::string tests;
    for (const TestCase& seen : proposal.seen) {
        if (count[seen.kind]++ < kTestsOfAKind) absl::StrAppend(&tests, "    - {", CaseName(seen.kind), ": ", Scalar(seen.object), "}\n");
    }
    if (!tests.empty()) absl::StrAppend(out, "tests:\n  allow:\n", tests);
}

}  // namespace

std::string ToYaml(const Proposal& proposal, const YamlOptions& options) {
    std::string out = absl::StrCat("# Proposed from ", proposal.events, " events of ", proposal.sandboxes.size(),
                                   proposal.sandboxes.size() == 1 ? " sandbox" : " sandboxes",
                                   ". Read each line: it allows what the tool did, whether it should have or not.\n");
    for (const std::string& left : proposal.left_out) absl::StrAppend(&out, "# left out: ", Comment(left), "\n");
    absl::StrAppend(&out, "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", options.name, "}\nspec:\n  violation: deny\n");
    out += "  exec:\n";
    if (proposal.exec.empty()) out += "    allow: []\n";
    AppendList("allow", proposal.exec, false, &out);
    AppendList("libraries", proposal.libraries, false, &out);
    out += "  files:\n";
    if (proposal.read.empty()) out += "    read: []\n";
    AppendList("read", proposal.read, false, &out);
    AppendList("write", proposal.write, false, &out);
    out += kDeny;
    out += "  network:\n";
    if (proposal.connect.empty()) out += "    allow: []\n";
    AppendList("allow", proposal.connect, true, &out);
    if (proposal.any_loopback) out += "    loopback: [any]                                 # ports that the kernel chose among them\n";
    else AppendPorts("loopback", proposal.loopback, &out);
    AppendPorts("bind", proposal.bind, &out);
    if (!proposal.names.empty()) out += "  dns:\n";
    AppendList("allow", proposal.names, false, &out);
    AppendTests(proposal, &out);
    return out;
}

}  // namespace stockade::policy
