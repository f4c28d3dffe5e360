// A resolver on loopback that does what a test tells it to.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/dns/dns_wire.h"
#include "userspace/base/fd.h"
#include "userspace/dns/stub_types.h"

namespace stockade {

class FakeUpstream {
  public:
    // May be kept and replied to later, while the upstream lives (over TCP: not).
    struct Query {
        std::string bytes;
        uint16_t id = 0, type = 0;
        std::string name;  // on the wire, as it came
        bool tcp = false;
        int number = 0;  // from 1

        void Reply(const std::string& message) const;
        void ReplyFromElsewhere(const std::string& message) const;
        // Over TCP: bytes as they are.
        void SendRaw(const std::string& bytes) const;
        // The right answer's head and question, to add to.
        WireAnswer Answer() const;

        int fd = -1;
        sockaddr_in peer{};
    };
    using Script = std::function<void(const Query&)>;

    explicit FakeUpstream(Script script);
    ~FakeUpstream();

    dns::UpstreamAddress address() const { return *dns::UpstreamAddress::Parse("127.0.0.1", port_); }
    std::vector<Query> queries() const;

  private:
    void Run();
    void OnUdp();
    void OnTcp();
    void Play(Query query);

    const Script script_;
    uint16_t port_ = 0;
    Fd udp_, listener_, stop_;
    mutable std::mutex mutex_;
    std::vector<Query> queries_;
    std::thread thread_;
};

// A socket of this type (SOCK_DGRAM or SOCK_STREAM) bound to loopback; 0 takes any port.
Fd BoundSocket(int type, uint16_t port);
uint16_t PortOf(int fd);
// UDP and a TCP socket that listens on the same port.
std::pair<Fd, Fd> BoundPair();

}  // namespace stockade
