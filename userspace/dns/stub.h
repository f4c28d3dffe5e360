// The agent's DNS stub: answers sandboxes, each at an address of its own, from upstream resolvers.
//
//   SK_ASSIGN_OR_RETURN(auto stub, Stub::Start({}));
//   stub->Add(slot, std::move(udp), std::move(listener), {.upstreams = ..., .judge = ..., .answered = ...});
//   ...
//   stub->Remove(slot);
//
// Only canonical queries are answered, and none of a client's bytes go on but its question's name in lower case;
// no record of an upstream comes back that does not follow from the question. One thread serves all. It does not
// meter (the kernel does, before the query arrives), does not validate DNSSEC, and does not serve zones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>

#include "userspace/dns/stub_counters.h"
#include "userspace/dns/stub_service.h"
#include "userspace/dns/stub_types.h"

namespace stockade::dns {

class Stub {
  public:
    using Options = StubOptions;
    using Question = StubQuestion;
    using Policy = StubPolicy;
    using Answered = StubAnswered;
    using Client = StubClient;
    using Counters = StubCounters;

    static StatusOr<std::unique_ptr<Stub>> Start(Options options);
    // Ends the thread; as Remove of every client.
    ~Stub();
    Stub(const Stub&) = delete;
    Stub& operator=(const Stub&) = delete;

    // From any thread but the stub's, that is, not from a client's functions. Both sockets are bound to the one
    // address at which the client reaches us: answers leave from where the socket is bound. Upstreams are reached
    // from the network namespace of the thread that called Start.
    // kInvalidArgument: not such sockets, no upstream, a function is missing. kAlreadyExists: the key.
    Status Add(uint32_t key, Fd udp, Fd tcp_listener, Client client);
    // When it returns no function of that client runs any more. A key that is not there is no error.
    void Remove(uint32_t key);
    Counters counters() const { return counts_.Read(); }

  private:
    Stub(Options options, std::unique_ptr<StubLoop> loop);

    const Options options_;
    StubCounts counts_;
    std::unique_ptr<StubLoop> loop_;
    StubContext context_;
    std::map<uint32_t, std::unique_ptr<StubService>> services_;  // of the loop's thread
    std::thread thread_;
};

}  // namespace stockade::dns
