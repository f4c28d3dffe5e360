#include "userspace/policy/learn.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/model/reason.h"
#include "userspace/model/text.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

// What C libraries connect a datagram socket to, to learn which source address an address would have: nothing is sent.
constexpr uint32_t kProbePorts[] = {0, 9, 65535};
constexpr uint16_t kFirstEphemeralPort = 32768;  // Linux: net.ipv4.ip_local_port_range; the next run has another one
constexpr uint32_t kDnsPort = 53;  // the resolver's, which the dns section opens

// A kernel path that a pattern can stand for.
bool CanBeNamed(const std::string& path, const v1::PathDetail& detail) {
    return absl::StartsWith(path, "/") && model::IsPrintable(path) && !detail.escaped() && !detail.truncated() && !detail.unreachable() && !detail.deleted() &&
           !detail.unverified();
}

bool IsLoopbackText(const std::string& address) { return absl::StartsWith(address, "127.") || address == "::1"; }

// In a block that no name of the world opens (docs/dns.md): such an address is proposed as it is.
bool IsPrivateText(const std::string& address) {
    static constexpr const char* kBlocks[] = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7", "fe80::/10"};
    const StatusOr<NetworkRule> one = ParseCidr(address);
    return !one.ok() || std::any_of(std::begin(kBlocks), std::end(kBlocks), [&](const char* text) {
        const StatusOr<NetworkRule> block = ParseCidr(text);
        const auto masked = [&](uint64_t word, int from) {
            const int bits = std::clamp(block->bits - from, 0, 64);
            return bits == 0 ? 0 : word & (~uint64_t{0} << (64 - bits));
        };
        if (block->family != one->family) return false;
        // IPv4 lies in the low half of the low word.
        if (one->family == 4) return (one->lo >> (32 - block->bits)) == (block->lo >> (32 - block->bits));
        return masked(one->hi, 0) == masked(block->hi, 0) && masked(one->lo, 64) == masked(block->lo, 64);
    });
}

std::string EndpointOf(const v1::Net& net) {
    return absl::StrContains(net.address(), ':') ? absl::StrCat("[", net.address(), "]:", net.port()) : absl::StrCat(net.address(), ":", net.port());
}

// What is allowed to every policy that does not turn it off.
StatusOr<Judge> BaseJudge() {
    ParseResult parsed = ParseFiles({{"learn", "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: learn}\n"
                                               "spec: {exec: {allow: []}, files: {read: []}}\n"}});
    PolicyLibrary library;
    library.Add(std::move(parsed.policies), parsed.diagnostics);
    SK_ASSIGN_OR_RETURN(ResolvedPolicy policy, library.Resolve("learn"));
    return Judge::Create(std::move(policy));
}

TestCase Question(CaseKind kind, const std::string& object) {
    TestCase question;
    question.kind = kind;
    question.object = object;
    return question;
}

std::map<std::string, Evidence> BeyondBase(const std::map<std::string, Evidence>& objects, CaseKind kind, const StatusOr<Judge>& base) {
    std::map<std::string, Evidence> out;
    for (const auto& [object, evidence] : objects) {
        if (!base.ok() || !base->Decide(Question(kind, object)).allowed) out.emplace(object, evidence);
    }
    return out;
}

std::vector<LearnedLine> Lines(const std::map<std::string, Evidence>& patterns) {
    std::vector<LearnedLine> out;
    for (const auto& [pattern, evidence] : patterns) {
        const bool covered = !absl::EndsWith(pattern, "/**") && patterns.contains(pattern + "/**");
        if (!covered) out.push_back({pattern, evidence});
    }
    return out;
}

// Libraries of one directory: their names are full of versions.
std::map<std::string, Evidence> LibraryPatterns(const std::map<std::string, Evidence>& paths) {
    std::map<std::string, Evidence> out;
    for (const auto& [path, evidence] : GeneralPatterns(paths, false)) {
        const size_t slash = path.rfind('/');
        const bool shared = absl::StrContains(path.substr(slash), ".so") && !absl::EndsWith(path, "/**");
        Evidence& sum = out[shared ? absl::StrCat(path.substr(0, slash), "/*.so*") : path];
        const uint64_t before = sum.count;
        if (before == 0) sum = evidence;
        sum.count = before + evidence.count;
    }
    return out;
}

}  // namespace

void Learner::Note(Objects* objects, const std::string& object, const v1::Event& event) {
    if (objects->size() >= kMaxLearned && !objects->contains(object)) {
        ++beyond_;
        return;
    }
    Evidence& evidence = (*objects)[object];
    if (evidence.count++ > 0) return;
    const std::string& exe = event.process().exe();
    evidence.program = exe.empty() ? event.process().comm() : exe.substr(exe.rfind('/') + 1);
    evidence.event = event.id();
    evidence.sample = object;
}

void Learner::LeaveOut(const std::string& what, const v1::Event& event) { Note(&left_out_, what, event); }

void Learner::Add(const v1::Event& event) {
    if (event.sandbox().id().empty() || event.dns().quiet()) return;
    const bool operation = event.has_exec() || event.has_file() || event.has_net() || event.has_dns() || event.has_escape();
    if (!operation) return;
    ++events_;
    sandboxes_.insert(event.sandbox().id());
    if (event.outcome() != "done") return;  // what was refused is not what the tool needs
    if (event.has_escape()) {
        const std::string grant = model::GrantLine(model::GrantOfEscape(event.escape().op()));
        if (event.dry_run()) LeaveOut(absl::StrCat(event.escape().op(), grant.empty() ? " is refused under every policy" : " needs " + grant), event);
        return;
    }
    if (event.has_dns()) {
        if (!event.dns().escaped() && model::IsPrintable(event.dns().name()) && event.dns().fault().empty()) Note(&names_, event.dns().name(), event);
        return;
    }
    if (event.has_net()) return AddNet(event);
    AddFile(event);
}

void Learner::AddFile(const v1::Event& event) {
    const bool exec = event.has_exec();
    const std::string& path = exec ? event.exec().path() : event.file().path();
    if (!CanBeNamed(path, exec ? event.exec().path_detail() : event.file().path_detail()))
        return LeaveOut(absl::StrCat("no pattern can name ", path), event);
    if (IsSensitive(path)) return LeaveOut(absl::StrCat(path, " holds credentials or leads out of a sandbox"), event);
    if (exec) return Note(event.exec().role() == "mapped" ? &libraries_ : &exec_, path, event);
    const std::string& op = event.file().op();
    if (op == "open-by-handle") return LeaveOut("opening by handle needs grants: [open_by_handle]", event);
    Note(op == "open-read" || op == "open-directory" ? &read_ : &write_, path, event);
}

void Learner::AddNet(const v1::Event& event) {
    const v1::Net& net = event.net();
    if (!net.unix_path().empty()) {
        if (net.escaped() || !model::IsPrintable(net.unix_path())) return LeaveOut(absl::StrCat("no pattern can name the socket ", net.unix_path()), event);
        if (IsSensitive(net.unix_path())) return LeaveOut(absl::StrCat(net.unix_path(), " leads out of a sandbox"), event);
        return Note(&unix_, net.unix_path(), event);
    }
    if (net.op() == "socket" || net.op() == "receive-fd") {
        if (event.dry_run()) LeaveOut(absl::StrCat(model::ObjectOf(event), " needs ", model::Suggestion(event)), event);
        return;
    }
    const auto port = static_cast<uint16_t>(net.port());
    if (net.op() == "bind" || net.op() == "listen") {
        if (port != 0) (IsLoopbackText(net.address()) ? loopback_ : bind_).insert(port);
        return;
    }
    if (net.address().empty() || net.port() == kDnsPort) return;
    if (net.type() == "dgram" && std::find(std::begin(kProbePorts), std::end(kProbePorts), net.port()) != std::end(kProbePorts)) return;
    if (net.address() == "169.254.169.254") return LeaveOut("169.254.169.254 gives the credentials of a cloud's machine", event);
    if (IsLoopbackText(net.address())) loopback_.insert(port);
    else Note(&connect_, EndpointOf(net), event);
}

// Where names were asked for, they stand for what was connected to: addresses are another day's.
void Learner::ProposeNetwork(Proposal* out) const {
    std::set<uint32_t> ports;
    for (const auto& [endpoint, evidence] : connect_) {
        const size_t colon = endpoint.rfind(':');
        std::string address = endpoint.substr(0, colon);
        if (address[0] == '[') address = address.substr(1, address.size() - 2);
        uint32_t port = 0;
        if (!absl::SimpleAtoi(endpoint.substr(colon + 1), &port)) continue;
        if (!names_.empty() && !IsPrivateText(address)) {
            ports.insert(port);
            continue;
        }
        const bool six = absl::StrContains(address, ':');
        out->connect.push_back({absl::StrCat("{cidr: \"", address, six ? "/128" : "/32", "\", ports: [", port, "]}"), evidence});
        out->seen.push_back(Question(CaseKind::kConnect, endpoint));
    }
    for (const auto& [name, evidence] : names_) {
        out->seen.push_back(Question(CaseKind::kDns, name));
        if (ports.empty()) out->names.push_back({name, evidence});
        else out->connect.push_back({absl::StrCat("{name: \"", name, "\", ports: [", absl::StrJoin(ports, ", "), "]}"), evidence});
    }
    for (const auto& [path, evidence] : unix_) {
        out->connect.push_back({absl::StrCat("{unix: \"", path, "\"}"), evidence});
        out->seen.push_back(Question(CaseKind::kUnix, path));
    }
    out->loopback = loopback_;
    out->any_loopback = std::erase_if(out->loopback, [](uint16_t port) { return port >= kFirstEphemeralPort; }) > 0;
    out->bind = bind_;
}

Proposal Learner::Propose() const {
    Proposal out;
    out.events = events_;
    out.sandboxes = sandboxes_;
    const StatusOr<Judge> base = BaseJudge();
    const Objects exec = exec_, libraries = BeyondBase(libraries_, CaseKind::kMap, base);
    Objects write = BeyondBase(write_, CaseKind::kWrite, base), read = BeyondBase(read_, CaseKind::kRead, base);
    out.exec = Lines(GeneralPatterns(exec, false));
    out.libraries = Lines(LibraryPatterns(libraries));
    out.write = Lines(GeneralPatterns(write, false));
    const std::map<std::string, Evidence> written = GeneralPatterns(write, false);
    std::erase_if(read, [&](const auto& object) { return written.contains(GeneralPattern(object.first)); });  // may be read back
    out.read = Lines(GeneralPatterns(read, true));
    ProposeNetwork(&out);
    const std::pair<CaseKind, const Objects*> kAll[] = {
        {CaseKind::kExec, &exec}, {CaseKind::kMap, &libraries}, {CaseKind::kRead, &read}, {CaseKind::kWrite, &write}};
    for (const auto& [kind, objects] : kAll) {
        for (const auto& [object, evidence] : *objects) out.seen.push_back(Question(kind, object));
    }
    for (const auto& [what, evidence] : left_out_)
        out.left_out.push_back(absl::StrCat(what, " (", evidence.count, " times, by ", evidence.program, ")"));
    if (beyond_ > 0) out.left_out.push_back(absl::StrCat(beyond_, " operations on more than ", kMaxLearned, " different objects"));
    return out;
}

}  // namespace stockade::policy
