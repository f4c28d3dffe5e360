#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "userspace/decode/payload.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

// Words that SOC tools use; anything else is shown by its number.
std::string FamilyName(uint16_t family) {
    switch (family) {
        case AF_UNSPEC: return "unspec";
        case AF_UNIX: return "unix";
        case AF_INET: return "inet";
        case AF_INET6: return "inet6";
        case AF_NETLINK: return "netlink";
        case AF_PACKET: return "packet";
        case AF_TIPC: return "tipc";
        case AF_ALG: return "alg";
        case AF_VSOCK: return "vsock";
        case AF_SMC: return "smc";
        case AF_XDP: return "xdp";
        default: return absl::StrCat(family);
    }
}

std::string TypeName(uint16_t type) {
    switch (type & 0xf) {  // SOCK_NONBLOCK and SOCK_CLOEXEC stand above
        case SOCK_STREAM: return "stream";
        case SOCK_DGRAM: return "dgram";
        case SOCK_RAW: return "raw";
        case SOCK_RDM: return "rdm";
        case SOCK_SEQPACKET: return "seqpacket";
        case SOCK_PACKET: return "packet";
        default: return absl::StrCat(type & 0xf);
    }
}

std::string ProtocolName(const sk_net& net) {
    if (net.family != AF_INET && net.family != AF_INET6) {
        return net.protocol == 0 ? "" : absl::StrCat(net.protocol);
    }
    switch (net.protocol) {
        case IPPROTO_IP:
            if ((net.type & 0xf) == SOCK_STREAM) return "tcp";
            return (net.type & 0xf) == SOCK_DGRAM ? "udp" : "";
        case IPPROTO_ICMP: return "icmp";
        case IPPROTO_TCP: return "tcp";
        case IPPROTO_UDP: return "udp";
        case IPPROTO_ICMPV6: return "icmpv6";
        case IPPROTO_SCTP: return "sctp";
        case IPPROTO_UDPLITE: return "udplite";
        case IPPROTO_RAW: return "raw";
        case 262: return "mptcp";  // IPPROTO_MPTCP, which old headers lack
        default: return absl::StrCat(net.protocol);
    }
}

std::string AddressText(const sk_net& net) {
    if (net.family != AF_INET && net.family != AF_INET6) return {};
    char text[INET6_ADDRSTRLEN];
    return inet_ntop(net.family, net.address, text, sizeof(text)) ? text : "";
}

void SetUnixPath(const sk_net& record, v1::Net* net) {
    if (record.unix_len == 0) return;
    absl::string_view raw(record.unix_path, record.unix_len);
    std::string* out = net->mutable_unix_path();
    if (raw[0] == '\0') {
        net->set_unix_abstract(true);
        out->push_back('@');
        raw.remove_prefix(1);
    } else {
        raw = CString(raw.data(), raw.size());
    }
    net->set_escaped(model::AppendEscaped(raw, out));
}

}  // namespace

Status DecodePayload(const sk_net& record, Context& context, v1::Event* event) {
    if (record.unix_len > SK_UNIX_PATH_BYTES) {
        return context.Fail(Reason::STRING,
                            absl::StrCat("a unix path of ", static_cast<int>(record.unix_len), " bytes"));
    }
    v1::Net* net = event->mutable_net();
    SK_ASSIGN_OR_RETURN(const absl::string_view op,
                        Word(model::NetOps(), record.op, "net operation", context));
    net->set_op(std::string(op));
    net->set_family(FamilyName(record.family));
    net->set_type(TypeName(record.type));
    net->set_protocol(ProtocolName(record));
    net->set_mapped(record.mapped != 0);
    net->set_cookie(record.cookie);
    if (record.op != SK_NET_SOCKET) {
        net->set_address(AddressText(record));
        net->set_port(record.port);
    }
    if (record.family == AF_UNIX) {
        SetUnixPath(record, net);
    } else if (record.unix_len != 0) {
        net->set_escaped(model::AppendEscaped({record.unix_path, record.unix_len}, net->mutable_tls_name()));
    }
    return absl::OkStatus();
}

}  // namespace stockade::decode
