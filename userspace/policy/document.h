// The SandboxPolicy document as values: what a file says (SandboxPolicy) and what holds once
// `extends` is folded in (ResolvedPolicy). Every entry remembers where it was written, so that
// an error, a refusal and `explain` can all point at the line.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns_zone.h"
#include "bpf/wire/kinds.h"
#include "bpf/wire/policy.h"

namespace stockade::policy {

// Where something was written. Line and column count from 1; line 0 = not from a file.
struct Position {
    std::string file;
    int line = 0;
    int column = 0;
};
// "file:line:column", or the file alone where there is no line.
std::string ToString(const Position& at);

enum class Severity { kError, kWarning };

struct Diagnostic {
    Severity severity = Severity::kError;
    Position at;
    std::string message;
};
// "file:line:column: error: message".
std::string ToString(const Diagnostic& diagnostic);
bool HasErrors(const std::vector<Diagnostic>& diagnostics);

// A path pattern, a name, a grant: text and where it stands.
struct Entry {
    std::string text;
    Position at;
};

// Inclusive, host order.
struct PortRange {
    uint16_t first = 0;
    uint16_t last = 0;
};
struct PortEntry {
    PortRange ports;
    Position at;
};

enum class NetworkKind { kCidr, kName, kUnix };

struct NetworkRule {
    NetworkKind kind = NetworkKind::kCidr;
    std::string text;    // as written: "10.0.0.0/8", "*.pypi.org", "/run/x.sock", "@name"
    uint8_t family = 0;  // kCidr: 4 or 6
    uint8_t bits = 0;    // kCidr: prefix length
    uint64_t hi = 0;     // kCidr: address words as sk_net_key() takes them, masked
    uint64_t lo = 0;
    bool abstract = false;         // kUnix: text without its '@' is the abstract name
    std::vector<PortRange> ports;  // empty = any port
    bool tls_strict = false;       // kName: over TCP, and the ClientHello has to name it
    Position at;
};

struct ExecSection {
    Position at;
    std::vector<Entry> allow;
    std::vector<Entry> libraries;  // may be mapped as code, but not executed
    std::vector<Entry> deny;
    std::optional<sk_verdict> violation;
};

struct FilesSection {
    Position at;
    std::vector<Entry> read;
    std::vector<Entry> write;
    std::vector<Entry> deny;
    std::optional<sk_verdict> violation;
};

struct NetworkSection {
    Position at;
    std::vector<NetworkRule> allow;
    std::vector<PortEntry> loopback;  // connect to and bind on the sandbox's own loopback
    std::vector<PortEntry> host;      // ports of the host's loopback, forwarded in: connect
    std::vector<PortEntry> bind;      // bind on any address
    std::map<uint32_t, std::vector<NetworkRule>> uids;
    std::map<uint32_t, Position> uids_at;
    std::optional<sk_verdict> violation;
};

// Budgets in bytes; kNoDnsBudget: nothing is refused for it. What is not written has the meter's default.
inline constexpr uint32_t kNoDnsBudget = UINT32_MAX;
// A zone whose budget the policy names, in place of what its tier has.
struct DnsGrant {
    uint32_t bytes = 0;  // or kNoDnsBudget
    Position at;
};
struct DnsSection {
    Position at;
    std::optional<sk_dns_mode> mode;
    std::vector<Entry> resolvers;  // IP addresses that the stub asks; empty = the host's
    std::vector<Entry> allow;      // host names, or "*." and one for all below it
    std::map<std::string, uint32_t> budget;  // by tier: zone, ranked, total
    std::map<std::string, DnsGrant> grants;  // by zone: it and all below it
    std::optional<sk_verdict> violation;
};

enum class CaseKind { kExec, kMap, kRead, kWrite, kConnect, kUnix, kBind, kDns };

// One line of `tests:`: something that the policy must allow, or must refuse.
struct TestCase {
    CaseKind kind = CaseKind::kRead;
    bool expect_allowed = true;
    std::string object;  // path, ADDR:PORT, socket name, port, host name
    std::optional<uint32_t> uid;
    Position at;
};

// A document of kind SandboxPolicyTest: cases kept apart from the policy they are about.
struct PolicyTest {
    Entry policy;  // name of the policy
    std::vector<TestCase> cases;
};

// The name of a policy that one namespace of a cluster has for itself: no name has a slash otherwise.
std::string QualifiedName(absl::string_view name_space, absl::string_view name);

struct SandboxPolicy {
    std::string name;        // with its namespace, where it has one
    std::string name_space;  // it is for the pods of that namespace alone, and under what the node's own policies allow them
    Position at;
    std::optional<std::vector<Entry>> extends;  // absent = [base]
    std::map<std::string, std::string> match_labels;
    std::optional<sk_mode> mode;
    std::optional<sk_verdict> violation;
    std::optional<ExecSection> exec;
    std::optional<FilesSection> files;
    std::optional<NetworkSection> network;
    std::optional<DnsSection> dns;
    std::vector<Entry> grants;
    std::optional<sk_verdict> entered;  // DENY, OBSERVE, ALLOW (= enforce)
    std::array<std::optional<sk_record>, SK_SECTION_SLOTS> record;
    std::vector<TestCase> tests;
    // The base: what it allows does not make a section present in the policy that extends it.
    bool builtin = false;
};

// One path pattern with the operations that it allows or denies.
struct PathRule {
    std::string pattern;
    uint32_t allow = 0;  // SK_OP_* bits
    uint32_t deny = 0;
    // An operation needs an allow of every layer: ceilings, of which `extends` makes none.
    uint32_t layer = 0;
    std::string list;    // "files.read"
    std::string policy;  // the document it was written in
    Position at;
};

struct ResolvedPolicy {
    std::string name;
    Position at;
    std::vector<std::string> bases;  // what was folded in, in order
    std::map<std::string, std::string> match_labels;
    sk_mode mode = SK_MODE_ENFORCE;
    sk_verdict entered = SK_VERDICT_DENY;
    std::array<sk_verdict, SK_SECTION_SLOTS> violation{};
    std::array<sk_record, SK_SECTION_SLOTS> record{};
    std::array<bool, SK_SECTION_SLOTS> present{};  // exec, files, network: written by somebody
    bool deny_all = false;
    uint64_t grants = 0;  // bit per SK_GRANT_*
    uint32_t layers = 1;
    std::vector<PathRule> paths;
    std::vector<NetworkRule> network;  // unix rules with a path have their PathRule in `paths` too
    std::vector<PortEntry> loopback;
    std::vector<PortEntry> host;
    std::vector<PortEntry> bind;
    bool has_uids = false;
    std::map<uint32_t, std::vector<NetworkRule>> uids;
    // Single addresses (kCidr of all bits) that are denied whatever the rules allow, also where the section
    // is absent. No document says them: they are what a response takes from a running sandbox.
    std::vector<NetworkRule> denied;
    std::optional<DnsSection> dns;
    std::vector<TestCase> tests;
};

}  // namespace stockade::policy
