#include "userspace/model/reason.h"

#include <seccomp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/kinds.h"
#include "bpf/wire/policy.h"
#include "userspace/model/names.h"

namespace stockade::model {
namespace {

absl::string_view SentenceOf(uint32_t code) {
    switch (code) {
#define X(number, NAME, text, sentence) \
    case number:                        \
        return sentence;
        SK_CODES(X)
#undef X
    }
    return {};
}

absl::string_view GrantName(int grant) {
    switch (grant) {
#define X(bit, NAME, yaml) \
    case bit:              \
        return yaml;
        SK_GRANTS(X)
#undef X
    }
    return {};
}

std::string Grant(int grant) { return absl::StrCat("grants: [", GrantName(grant), "]"); }

std::string Endpoint(const v1::Net& net) {
    if (absl::StrContains(net.address(), ':')) {
        return absl::StrCat("[", net.address(), "]:", net.port());
    }
    return absl::StrCat(net.address(), ":", net.port());
}

// A path as a pattern that stands for it alone, as a YAML flow sequence takes it; empty for what is
// no path of a policy.
std::string PatternOf(absl::string_view path) {
    if (path.empty() || path[0] != '/') return {};
    bool plain = true;
    std::string pattern;
    for (unsigned char c : path) {
        const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c >= 0x80 || c == '/' || c == '.' ||
                          c == '_' || c == '-' || c == '+' || c == '@' || c == '=' || c == '~';
        plain = plain && word;
        if (absl::StrContains("*?[]{}\\", static_cast<char>(c))) pattern.push_back('\\');
        pattern.push_back(static_cast<char>(c));
    }
    if (plain) return pattern;
    // Within double quotes a backslash means something to YAML, within single ones a quote is doubled.
    if (absl::StrContains(pattern, '\'') && !absl::StrContains(pattern, '"') &&
        !absl::StrContains(pattern, '\\')) {
        return absl::StrCat("\"", pattern, "\"");
    }
    return absl::StrCat("'", absl::StrReplaceAll(pattern, {{"'", "''"}}), "'");
}

// Numbers of processes are another the next time; `self` in a policy stands for all of the sandbox's.
std::string WithoutPid(absl::string_view path) {
    absl::string_view rest = path;
    if (!absl::ConsumePrefix(&rest, "/proc/")) return std::string(path);
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits == 0 || (digits < rest.size() && rest[digits] != '/')) return std::string(path);
    return absl::StrCat("/proc/self", rest.substr(digits));
}

// The path of an event; empty where what is shown is not all of it: then no line is suggested, for
// one that means something else is worse than none.
std::string PlainPath(absl::string_view path, const v1::PathDetail& detail) {
    if (detail.escaped() || detail.truncated() || detail.unreachable() || detail.deleted()) {
        return {};
    }
    return PatternOf(WithoutPid(path));
}

std::string PathLine(absl::string_view list, absl::string_view path,
                     const v1::PathDetail& detail) {
    const std::string plain = PlainPath(path, detail);
    return plain.empty() ? "" : absl::StrCat(list, ": [", plain, "]");
}

std::string ConnectLine(const v1::Net& net) {
    if (net.address().empty() || net.port() == 0) return {};
    if (net.address() == "::1" || absl::StartsWith(net.address(), "127.")) {
        return absl::StrCat("network.loopback: [", net.port(), "]");
    }
    const absl::string_view bits = absl::StrContains(net.address(), ':') ? "128" : "32";
    // Quoted: an IPv6 address in a flow mapping would be read as a mapping.
    return absl::StrCat("network.allow: [{cidr: \"", net.address(), "/", bits, "\", ports: [",
                        net.port(), "]}]");
}

std::string UnixLine(const v1::Net& net) {
    v1::PathDetail detail;
    detail.set_escaped(net.escaped());
    if (!net.unix_abstract()) {
        const std::string plain = PlainPath(net.unix_path(), detail);
        return plain.empty() ? "" : absl::StrCat("network.allow: [{unix: ", plain, "}]");
    }
    // '@' cannot start a plain scalar.
    if (net.escaped() || absl::StrContains(net.unix_path(), '"')) return {};
    return absl::StrCat("network.allow: [{unix: \"", net.unix_path(), "\"}]");
}

std::string SocketLine(const v1::Net& net) {
    const std::string& family = net.family();
    const bool inet = family == "inet" || family == "inet6";
    if (inet && net.protocol() == "mptcp") return {};  // beside tls_name: strict there is none
    if (family == "packet") return Grant(SK_GRANT_PACKET_SOCKET);
    if (family == "vsock") return Grant(SK_GRANT_VSOCK);
    if (family == "alg") return Grant(SK_GRANT_AF_ALG);
    if (family == "netlink") return Grant(SK_GRANT_NETLINK);
    if (inet && net.protocol() == "sctp") return Grant(SK_GRANT_SCTP);
    if (inet && net.type() == "raw") return Grant(SK_GRANT_RAW_SOCKET);
    if (inet && absl::StartsWith(net.protocol(), "icmp")) return Grant(SK_GRANT_PING_SOCKET);
    return Grant(SK_GRANT_OTHER_SOCKET);
}

std::string EscapeObject(const v1::Escape& escape) {
    if (NumberOf(EscapeOps(), escape.op()) != SK_ESCAPE_OTHER_CALL) return escape.op();
    const std::unique_ptr<char, decltype(&free)> name(
        seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, static_cast<int>(escape.argument())), &free);
    return absl::StrCat("system call ", name ? name.get() : "number", " (", escape.argument(), ")");
}

constexpr struct {
    absl::string_view op;
    int grant;
} kEscapeGrants[] = {
    {"ptrace", SK_GRANT_PTRACE},
    {"process_vm", SK_GRANT_PTRACE},
    {"proc-mem", SK_GRANT_PTRACE},
    {"pidfd_getfd", SK_GRANT_PTRACE},
    {"mount", SK_GRANT_MOUNT},
    {"umount", SK_GRANT_MOUNT},
    {"pivot_root", SK_GRANT_MOUNT},
    {"chroot", SK_GRANT_CHROOT},
    {"setns", SK_GRANT_SETNS},
    {"unshare-user", SK_GRANT_USERNS},
    {"unshare-mount", SK_GRANT_MNTNS},
    {"bpf", SK_GRANT_BPF},
    {"perf_event_open", SK_GRANT_PERF_EVENT},
    {"io_uring", SK_GRANT_IO_URING},
    {"keyctl", SK_GRANT_KEYCTL},
    {"module", SK_GRANT_MODULE},
    {"kexec", SK_GRANT_KEXEC},
    {"userfaultfd", SK_GRANT_USERFAULTFD},
    {"cgroup", SK_GRANT_CGROUP_WRITE},
    {"capability", SK_GRANT_SETNS},
};

// Path of an exec or file event as a list entry.
std::string EventPathLine(absl::string_view list, const v1::Event& event) {
    if (event.has_exec()) return PathLine(list, event.exec().path(), event.exec().path_detail());
    return PathLine(list, event.file().path(), event.file().path_detail());
}

}  // namespace

int GrantOfEscape(absl::string_view op) {
    for (const auto& row : kEscapeGrants) {
        if (row.op == op) return row.grant;
    }
    return -1;
}

std::string GrantLine(int grant) { return grant < 0 ? "" : Grant(grant); }

std::string PathLineOf(absl::string_view list, absl::string_view path) { return PathLine(list, path, {}); }

absl::string_view CodeName(uint32_t code) { return NameOf(Codes(), code); }

std::string ReasonSentence(uint32_t code, absl::string_view object) {
    const absl::string_view sentence = SentenceOf(code);
    const size_t at = sentence.find("%s");
    if (at == sentence.npos) return std::string(sentence);
    absl::string_view before = sentence.substr(0, at), after = sentence.substr(at + 2);
    if (object.empty()) {
        // "needs a grant: " without its object reads better without the colon.
        if (absl::EndsWith(before, ": ")) before.remove_suffix(2);
        else object = "?";
    }
    return absl::StrCat(before, object, after);
}

std::string ObjectOf(const v1::Event& event) {
    switch (event.payload_case()) {
        case v1::Event::kExec: return event.exec().path();
        case v1::Event::kFile: return event.file().path();
        case v1::Event::kEscape: return EscapeObject(event.escape());
        case v1::Event::kLifecycle: return event.process().comm();
        case v1::Event::kDns: return event.dns().fault().empty() ? event.dns().name() : event.dns().fault();
        case v1::Event::kNet: break;
        default: return {};
    }
    const v1::Net& net = event.net();
    if (!net.unix_path().empty()) return net.unix_path();
    if (net.op() == "socket" || net.address().empty()) {
        return absl::StrCat(net.family(), "/", net.type(), "/", net.protocol());
    }
    const std::string& name = net.tls_name().empty() ? net.host_name() : net.tls_name();
    return name.empty() ? Endpoint(net) : absl::StrCat(name, " at ", Endpoint(net));
}

std::string Suggestion(const v1::Event& event) {
    switch (NumberOf(Codes(), event.code())) {
        case SK_CODE_EXEC_NOT_ALLOWED: return EventPathLine("exec.allow", event);
        case SK_CODE_MAP_NOT_ALLOWED: return EventPathLine("exec.libraries", event);
        case SK_CODE_EXEC_NO_PATH: return Grant(SK_GRANT_MEMFD_EXEC);
        case SK_CODE_READ_NOT_ALLOWED: return EventPathLine("files.read", event);
        case SK_CODE_WRITE_NOT_ALLOWED: return EventPathLine("files.write", event);
        case SK_CODE_HANDLE: return Grant(SK_GRANT_OPEN_BY_HANDLE);
        case SK_CODE_CONNECT_NOT_ALLOWED:
        case SK_CODE_SEND_NOT_ALLOWED:
        case SK_CODE_PACKET_NOT_ALLOWED: return ConnectLine(event.net());
        case SK_CODE_BIND_NOT_ALLOWED:
            return event.net().port() ? absl::StrCat("network.bind: [", event.net().port(), "]")
                                      : "";
        case SK_CODE_UNIX_NOT_ALLOWED: return UnixLine(event.net());
        case SK_CODE_SOCKET_NOT_ALLOWED: return SocketLine(event.net());
        case SK_CODE_SOCKET_RECEIVED: return Grant(SK_GRANT_SOCKET_RECEIVE);
        case SK_CODE_ESCAPE:
            return GrantLine(GrantOfEscape(event.escape().op()));
        case SK_CODE_ENTERED: return "entered: enforce";
        case SK_CODE_DNS_NOT_ALLOWED: return absl::StrCat("dns.allow: [", event.dns().name(), "]");
        case SK_CODE_DNS_SERVER: return absl::StrCat("dns.resolvers: [", event.dns().server(), "]");
        default: return {};
    }
}

bool IsViolation(const v1::Event& event) {
    return NumberOf(Verdicts(), event.verdict()) >= SK_VERDICT_DENY;
}

bool IsRefusal(const v1::Event& event) {
    return IsViolation(event) || (!event.lock().empty() && event.lock() != "none");
}

bool Kills(const v1::Event& event) {
    if (event.has_lifecycle() || event.has_repeat() || event.dry_run()) return false;
    const std::string& outcome = event.outcome();
    if (outcome == "done") return false;
    if (outcome == "killed after effect" || event.verdict() == "kill-sandbox") return true;
    if (outcome != "prevented") return false;
    if (event.verdict() == "kill-process") return true;
    // `signal` has no other way to refuse an exec.
    return IsViolation(event) && event.has_exec() && event.backend() == "signal" && event.lock() == "bpf";
}

}  // namespace stockade::model
