// For tests: a network namespace with resolvers of the test's own, and sandboxes without a stub that ask them.
#pragma once

#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "bpf/wire/dns_answer.h"
#include "tests/live/sandbox.h"

namespace stockade::live {

// The resolver of each sandbox; another of the same network; where a service's address leads to.
inline constexpr char kResolver[] = "10.1.0.53", kResolver6[] = "fd00::53", kOther[] = "10.1.0.54",
                      kService[] = "10.96.0.10", kBackend[] = "10.1.0.77";
inline constexpr int kBackendPort = 10053;

// A socket of the test, outside of every sandbox.
class Server {
  public:
    static StatusOr<Server> At(const std::string& address, int port);
    // The next datagram; empty after the test's patience. Who sent it is whom Say speaks to.
    std::string Hear();
    // Nothing has come.
    bool Silent();
    void Say(const std::string& bytes);
    const sockaddr_in6& peer() const { return peer_; }
    void set_peer(const sockaddr_in6& peer) { peer_ = peer; }

  private:
    Fd fd_;
    sockaddr_in6 peer_{};
    socklen_t peer_size_ = sizeof(sockaddr_in);

    friend class Client;
};

// One that lists names, and talks.
class Client {
  public:
    struct Opens {
        std::string name;
        bool below;
        std::vector<uint16_t> ports;
    };
    struct How {
        std::vector<std::string> exact = {"good.test"}, below = {"wild.test"};  // they open port 443
        std::vector<Opens> opens = {};          // more of them, in the kernel's binding alone
        std::vector<std::string> network = {};  // more items of network.allow
        std::vector<std::string> servers = {kResolver, kResolver6};
        std::vector<int> loopback = {};
        bool observe = false;
        bool network_section = true;
        bool answers = true;  // false: as with a stub
    };
    explicit Client(const How& how);
    ~Client();

    bool ok() const { return ok_; }
    // What the trigger dns_talk answers to a line, without its end.
    std::string Do(const std::string& line);
    // "send N ADDRESS PORT" with a message.
    std::string Send(int socket, const std::string& to, int port, const std::string& message);
    // Binds anew: other servers, or names.
    Status Bind(const How& how);
    // The end; more lines are not understood.
    Result Finish();
    const kernel::SlotRef& ref() const { return sandbox_->ref(); }

  private:
    std::unique_ptr<Sandbox> sandbox_;
    kernel::DnsBudgetRef budget_;
    bool ok_ = false;
};

// The process moves into the namespace for good. All of 203.0.0.0/8 and 2a00:53::1 are its own, as are the
// addresses above; a listener of TCP port 443 takes every connection.
class AnswerWorld {
  public:
    // The one of the process; null, and a test failure, where it cannot be had.
    static AnswerWorld* Get();

    Server resolver, resolver6, other, elsewhere, backend;  // `elsewhere`: the resolver's address, port 5300

  private:
    static std::unique_ptr<AnswerWorld> Create();
    Status Start();
    Fd four_, six_;
};

// Counters, by enum sk_dns_answer_end, since the last call.
std::vector<uint64_t> AnswersSince();

}  // namespace stockade::live
