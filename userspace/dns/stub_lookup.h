// One question to the upstreams, until one of them answers or the time is over.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "userspace/dns/stub_answer.h"
#include "userspace/dns/stub_counters.h"
#include "userspace/dns/stub_loop.h"
#include "userspace/dns/stub_socket.h"

namespace stockade::dns {

// What all lookups share. Not owned.
struct StubContext {
    StubLoop& loop;
    const StubOptions& options;
    StubCounts& counts;
    size_t in_flight = 0;  // queries of all clients without an answer
};

// Each try is a socket of its own with an id of its own; earlier ones are listened to until the end, so that a
// resolver that needs three seconds is heard. A new try is made every retry_ms, and at once when one failed and
// there is an upstream that was not asked yet.
class StubLookup {
  public:
    // Once, on the loop's thread, but not from Start. Null: nothing usable came.
    using Done = std::function<void(const StubAnswer*)>;

    // `upstreams` and *upstream_tcp (the client's connections to upstreams) outlive it.
    StubLookup(StubContext& context, const sk_dns_question& question,
               const std::vector<UpstreamAddress>& upstreams, size_t* upstream_tcp, Done done);
    ~StubLookup();
    StubLookup(const StubLookup&) = delete;
    StubLookup& operator=(const StubLookup&) = delete;

    void Start();

  private:
    struct Try {
        const UpstreamAddress* to;
        uint16_t id;
        bool tcp;
        Fd fd;
        int strays = 0;
        std::string out, in;  // of TCP
    };

    void Next();
    void Open(const UpstreamAddress& to, bool tcp);
    StatusOr<std::unique_ptr<Try>> Connect(const UpstreamAddress& to, bool tcp);
    void OnUdp(Try* attempt);
    void OnTcp(Try* attempt, uint32_t events);
    void Take(Try* attempt, StubReading reading, const StubAnswer& answer);
    void AskOverTcp(Try* attempt);
    void Fail(Try* attempt);
    void Close(Try* attempt);
    void GiveUpIfNothingIsLeft();
    void ArmRetry(uint32_t ms);
    void Finish(const StubAnswer* answer);

    StubContext& context_;
    const sk_dns_question question_;
    const std::vector<UpstreamAddress>& upstreams_;
    size_t* upstream_tcp_;
    Done done_;
    std::vector<std::unique_ptr<Try>> tries_;
    int made_ = 0;
    bool finished_ = false;
    StubLoop::Timer retry_, deadline_;
};

}  // namespace stockade::dns
