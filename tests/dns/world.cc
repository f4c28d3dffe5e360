#include "tests/dns/world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "absl/strings/ascii.h"
#include "tests/dns/dns_wire.h"
#include "userspace/dns/message.h"

namespace stockade::tests {
namespace {

// One record of the type asked for, or none.
std::string Reply(const std::string& query, const sk_dns_query& parsed, const std::string& name,
                  const World::Address& address, const std::string& text) {
    WireAnswer answer{.id = static_cast<uint16_t>(sk_dns_u16(dns::MessageBytes(query))),
                      .flags = static_cast<uint16_t>(address.text.empty() && text.empty() ? 0x8583 : 0x8580),
                      .name = name,
                      .type = parsed.question.type,
                      .answers = {},
                      .authorities = {}};
    if (!address.text.empty() && parsed.question.type == SK_DNS_TYPE_A) {
        const in_addr_t bytes = inet_addr(address.text.c_str());
        answer.answers.push_back({AtQuestion(), SK_DNS_TYPE_A, address.ttl_s,
                                  std::string(reinterpret_cast<const char*>(&bytes), 4)});
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

World::World() : stop_(eventfd(0, EFD_CLOEXEC)) { status_ = Start(); }

World::~World() {
    (void)eventfd_write(stop_.get(), 1);
    if (hello_thread_.joinable()) hello_thread_.join();
    if (names_thread_.joinable()) names_thread_.join();
}

Status World::Start() {
    SK_ASSIGN_OR_RETURN(outside_, Outside::Create());
    SK_ASSIGN_OR_RETURN(names_fds_[0], BoundTo(kResolver, 53, SOCK_DGRAM));
    SK_RETURN_IF_ERROR(outside_->Inside([this]() -> Status {
        SK_ASSIGN_OR_RETURN(names_fds_[1], BoundTo(kOutside, 53, SOCK_DGRAM));
        for (const int port : {kPort, kOtherPort}) {
            SK_ASSIGN_OR_RETURN(Fd fd, BoundTo(kOutside, port, SOCK_STREAM));
            hello_.push_back(std::move(fd));
        }
        SK_ASSIGN_OR_RETURN(Fd web, BoundTo("0.0.0.0", 80, SOCK_STREAM));
        web_ = std::make_unique<Web>(std::move(web));
        return absl::OkStatus();
    }));
    hello_thread_ = std::thread([this] { ServeHello(); });
    names_thread_ = std::thread([this] { ServeNames(); });
    return absl::OkStatus();
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
        pollfd fds[] = {
            {stop_.get(), POLLIN, 0}, {names_fds_[0].get(), POLLIN, 0}, {names_fds_[1].get(), POLLIN, 0}};
        (void)poll(fds, 3, -1);
        if (fds[0].revents != 0) return;
        for (int i = 0; i < 2; ++i) {
            if (fds[i + 1].revents != 0) ServeOne(names_fds_[i].get());
        }
    }
}

void World::ServeOne(int fd) {
    char bytes[2048];
    sockaddr_in from{};
    socklen_t size = sizeof(from);
    const ssize_t n =
        recvfrom(fd, bytes, sizeof(bytes), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &size);
    if (n <= 0) return;
    const std::string query(bytes, static_cast<size_t>(n));
    sk_dns_query parsed;
    if (sk_dns_check_query(dns::MessageBytes(query), static_cast<uint32_t>(n), SK_DNS_ALLOW_UPPER, &parsed) !=
        SK_DNS_OK)
        return;
    dns::HostName name;
    dns::ToHostName(parsed.question.name, &name);
    Address address;
    std::string text;
    {
        std::lock_guard lock(mutex_);
        queries_.push_back({std::string(name.sent()), parsed.question.type});
        if (const auto found = addresses_.find(std::string(name.lower())); found != addresses_.end())
            address = found->second;
        if (const auto found = texts_.find(std::string(name.lower())); found != texts_.end()) text = found->second;
        if (on_query_) on_query_(queries_.back());
    }
    const std::string reply = Reply(query, parsed, std::string(name.lower()), address, text);
    (void)sendto(fd, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
}

void World::Answer(const std::string& name, const std::string& address, uint32_t ttl_s) {
    std::lock_guard lock(mutex_);
    addresses_[name] = {address, ttl_s};
}

void World::OnQuery(std::function<void(const Query&)> fn) {
    std::lock_guard lock(mutex_);
    on_query_ = std::move(fn);
}

std::vector<World::Query> World::TakeQueries() {
    std::lock_guard lock(mutex_);
    return std::exchange(queries_, {});
}

void World::Text(const std::string& name, const std::string& text) {
    std::lock_guard lock(mutex_);
    texts_[name] = text;
}

std::vector<std::string> World::TakeNames() {
    std::vector<std::string> names;
    for (const Query& query : TakeQueries()) names.push_back(absl::AsciiStrToLower(query.name));
    return names;
}

}  // namespace stockade::tests
