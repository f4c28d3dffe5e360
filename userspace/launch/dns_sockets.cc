#include "userspace/launch/dns_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

constexpr uint16_t kDnsPort = 53;
constexpr int kBacklog = 16;  // as many connections as the stub serves to one client

StatusOr<Fd> BoundTo(const sockaddr_in& address, const std::string& link, int type) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) return ErrnoStatus(errno, "make a socket for DNS");
    // The address is the host's: without the link whoever reaches the host could ask in the sandbox's name.
    if (setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, link.data(), static_cast<socklen_t>(link.size())) != 0) {
        return ErrnoStatus(errno, absl::StrCat("bind the sandbox's resolver to its link ", link));
    }
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        if (errno == EADDRINUSE) {
            return absl::AlreadyExistsError(
                "port 53 of every address of this host is taken, by a resolver that listens on 0.0.0.0: let it "
                "listen on 127.0.0.1 alone (dnsmasq: bind-interfaces; unbound: interface)");
        }
        return ErrnoStatus(errno, "bind port 53 for the sandbox's resolver");
    }
    return fd;
}

}  // namespace

StatusOr<DnsSockets> ListenForDns(const std::string& address, const std::string& link) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_port = htons(kDnsPort);
    if (inet_pton(AF_INET, address.c_str(), &here.sin_addr) != 1) {
        return absl::InvalidArgumentError(absl::StrCat("no IPv4 address: '", address, "'"));
    }
    DnsSockets sockets;
    SK_ASSIGN_OR_RETURN(sockets.udp, BoundTo(here, link, SOCK_DGRAM));
    SK_ASSIGN_OR_RETURN(sockets.tcp, BoundTo(here, link, SOCK_STREAM));
    if (listen(sockets.tcp.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen for DNS");
    return sockets;
}

}  // namespace stockade::launch
