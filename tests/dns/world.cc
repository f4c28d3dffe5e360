#include "tests/dns/world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "tests/dns/dns_wire.h"
#include "userspace/base/errno.h"
#include "userspace/dns/message.h"
#include "userspace/launch/netlink.h"
#include "userspace/launch/network_host.h"

namespace stockade::tests {
namespace {

constexpr char kLink[] = "stkdnsworld";

StatusOr<Fd> BoundTo(const char* address, int port, int type) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_port = htons(static_cast<uint16_t>(port));
    here.sin_addr.s_addr = inet_addr(address);
    const int yes = 1;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&here), sizeof(here)) != 0) return ErrnoStatus(errno, address);
    if (type == SOCK_STREAM && listen(fd.get(), 64) != 0) return ErrnoStatus(errno, "listen");
    return fd;
}

// One record of the type asked for, or none.
std::string Reply(const std::string& query, const sk_dns_query& parsed, const std::string& name, const std::string& address,
                  const std::string& text) {
    WireAnswer answer{.id = static_cast<uint16_t>(sk_dns_u16(dns::MessageBytes(query))),
                      .flags = static_cast<uint16_t>(address.empty() && text.empty() ? 0x8583 : 0x8580),
                      .name = name,
                      .type = parsed.question.type,
                      .answers = {},
                      .authorities = {}};
    if (!address.empty() && parsed.question.type == SK_DNS_TYPE_A) {
        const in_addr_t bytes = inet_addr(address.c_str());
        answer.answers.push_back({AtQuestion(), SK_DNS_TYPE_A, 60, std::string(reinterpret_cast<const char*>(&bytes), 4)});
    }
    if (!text.empty() && parsed.question.type == SK_DNS_TYPE_TXT) {
        std::string data;
        for (size_t at = 0; at < text.size(); at += 255) {
            const std::string part = text.substr(at, 255);
            data += static_cast<char>(part.size()) + part;
        }
        answer.answers.push_back({AtQuestion(), SK_DNS_TYPE_TXT, 60, data});
    }
    return answer.Bytes();
}

}  // namespace

World::World() : stop_(eventfd(0, EFD_CLOEXEC)) {
    status_ = Start();
}

World::~World() {
    (void)eventfd_write(stop_.get(), 1);
    if (hello_thread_.joinable()) hello_thread_.join();
    if (names_thread_.joinable()) names_thread_.join();
    auto netlink = launch::Netlink::Create();
    if (netlink.ok()) (void)netlink->DeleteLink(kLink);
}

Status World::Start() {
    SK_ASSIGN_OR_RETURN(names_fd_, BoundTo(kResolver, 53, SOCK_DGRAM));
    Status made;
    // The namespace is that of a thread, and goes with the sockets that are made in it.
    std::thread([&] { made = MakeLink(); }).join();
    SK_RETURN_IF_ERROR(made);
    hello_thread_ = std::thread([this] { ServeHello(); });
    names_thread_ = std::thread([this] { ServeNames(); });
    return absl::OkStatus();
}

Status World::MakeLink() {
    SK_ASSIGN_OR_RETURN(Fd host, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
    SK_ASSIGN_OR_RETURN(launch::Netlink outside, launch::Netlink::Create());
    SK_RETURN_IF_ERROR(outside.DeleteLink(kLink));
    if (unshare(CLONE_NEWNET) != 0) return ErrnoStatus(errno, "unshare");
    SK_ASSIGN_OR_RETURN(Fd world, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
    SK_ASSIGN_OR_RETURN(launch::Netlink inside, launch::Netlink::Create());
    SK_RETURN_IF_ERROR(inside.AddVeth("eth0", kLink, host.get()));
    SK_RETURN_IF_ERROR(inside.AddAddress("eth0", inet_addr(kOutside), 30));
    for (const int port : {kPort, kOtherPort}) {
        SK_ASSIGN_OR_RETURN(Fd fd, BoundTo(kOutside, port, SOCK_STREAM));
        hello_.push_back(std::move(fd));
    }
    if (setns(host.get(), CLONE_NEWNET) != 0) return ErrnoStatus(errno, "setns");
    SK_RETURN_IF_ERROR(outside.AddAddress(kLink, inet_addr(kHost), 30));
    return launch::SetUpHostLink(kLink);
}

void World::ServeHello() {
    for (;;) {
        pollfd fds[] = {{stop_.get(), POLLIN, 0}, {hello_[0].get(), POLLIN, 0}, {hello_[1].get(), POLLIN, 0}};
        (void)poll(fds, 3, -1);
        if (fds[0].revents != 0) return;
        for (int i = 0; i < 2; ++i) {
            if (fds[i + 1].revents == 0) continue;
            Fd peer(accept4(hello_[static_cast<size_t>(i)].get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (peer.ok()) (void)send(peer.get(), "hello", 5, MSG_NOSIGNAL);
        }
    }
}

void World::ServeNames() {
    for (;;) {
        pollfd fds[] = {{stop_.get(), POLLIN, 0}, {names_fd_.get(), POLLIN, 0}};
        (void)poll(fds, 2, -1);
        if (fds[0].revents != 0) return;
        char bytes[2048];
        sockaddr_in from{};
        socklen_t size = sizeof(from);
        const ssize_t n = recvfrom(names_fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
        if (n <= 0) continue;
        const std::string query(bytes, static_cast<size_t>(n));
        sk_dns_query parsed;
        if (sk_dns_check_query(dns::MessageBytes(query), static_cast<uint32_t>(n), SK_DNS_ALLOW_UPPER, &parsed) != SK_DNS_OK) continue;
        dns::HostName name;
        dns::ToHostName(parsed.question.name, &name);
        std::string address, text;
        {
            std::lock_guard lock(mutex_);
            names_.emplace_back(name.lower());
            if (const auto found = addresses_.find(std::string(name.lower())); found != addresses_.end()) address = found->second;
            if (const auto found = texts_.find(std::string(name.lower())); found != texts_.end()) text = found->second;
        }
        const std::string reply = Reply(query, parsed, std::string(name.lower()), address, text);
        (void)sendto(names_fd_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
}

void World::Answer(const std::string& name, const std::string& address) {
    std::lock_guard lock(mutex_);
    addresses_[name] = address;
}

void World::Text(const std::string& name, const std::string& text) {
    std::lock_guard lock(mutex_);
    texts_[name] = text;
}

std::vector<std::string> World::TakeNames() {
    std::lock_guard lock(mutex_);
    return std::exchange(names_, {});
}

}  // namespace stockade::tests
