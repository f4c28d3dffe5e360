// A stub on loopback with one client, and the client's side of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/dns/fake_upstream.h"
#include "userspace/dns/stub.h"

namespace stockade {

// Waits of tests: long enough for a busy machine, and no right test needs them.
inline constexpr int kPatienceMs = 20000;

class StubTest : public testing::Test {
  protected:
    // Faster than life, with room for a machine of two cores.
    static dns::StubOptions Quick() {
        return {
            .min_ttl_s = 30, .retry_ms = 200, .upstream_tcp_ms = 1000, .deadline_ms = 1500, .idle_ms = 10000};
    }

    void Start(std::vector<dns::UpstreamAddress> upstreams, dns::StubOptions options = Quick());

    // The answer, or nothing after kPatienceMs.
    std::string AskUdp(const std::string& query);
    std::string AskTcp(const std::string& query);
    Fd UdpClient() const;
    Fd TcpClient() const;
    static std::string ReceiveUdp(const Fd& fd);
    static std::string ReceiveTcp(const Fd& fd);
    static void SendTcp(const Fd& fd, const std::string& bytes);
    // Whether the other side has closed it.
    static bool IsClosed(const Fd& fd);

    std::vector<dns::StubAnswered> told() const;
    dns::StubCounters counters() const { return stub_->counters(); }

    uint16_t port_ = 0;
    dns::StubPolicy policy_ = dns::StubPolicy::kForward;  // set before Start
    bool let_through_ = true;                             // the same
    std::vector<dns::StubQuestion> judged_;               // read after an answer
    mutable std::mutex mutex_;
    std::vector<dns::StubAnswered> told_;
    std::unique_ptr<dns::Stub> stub_;  // dies first
};

}  // namespace stockade
