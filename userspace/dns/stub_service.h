// What the stub does for one client: its two sockets, its questions under way, its cache.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "userspace/dns/stub_cache.h"
#include "userspace/dns/stub_connection.h"
#include "userspace/dns/stub_lookup.h"
#include "userspace/dns/stub_query.h"

namespace stockade::dns {

// On the loop's thread from Create to its end.
class StubService {
  public:
    static StatusOr<std::unique_ptr<StubService>> Create(StubContext& context, Fd udp, Fd listener,
                                                         StubClient client);
    ~StubService();
    StubService(const StubService&) = delete;
    StubService& operator=(const StubService&) = delete;

  private:
    // Whom an answer goes to.
    struct Asker {
        StubQuery query;
        uint64_t connection = 0;  // 0: UDP, and `peer`
        sockaddr_storage peer{};
        socklen_t peer_size = 0;
    };
    // One question under way, and all who asked it meanwhile.
    struct Flight {
        std::vector<Asker> askers;
        std::unique_ptr<StubLookup> lookup;
    };

    StubService(StubContext& context, Fd udp, Fd listener, StubClient client);
    Status Watch();
    void OnUdp();
    void OnConnection();
    void Accept(Fd fd);
    bool OnMessage(uint64_t connection, absl::string_view message);
    // Lets both sockets be for a second: one that failed would wake us again at once.
    void Pause();

    void Ask(Asker asker);
    void Forward(Asker asker);
    void OnAnswer(const StubCache::Key& key, const StubAnswer* answer);
    void Give(const Asker& asker, const StubAnswer& answer, uint32_t age_s, bool from_cache);
    void Send(const Asker& asker, absl::string_view message);

    StubContext& context_;
    Fd udp_, listener_;
    StubClient client_;
    StubCache cache_;
    size_t upstream_tcp_ = 0;
    std::map<StubCache::Key, Flight> flights_;
    size_t in_flight_ = 0;  // askers of all flights
    std::map<uint64_t, std::unique_ptr<StubConnection>> connections_;
    uint64_t next_connection_ = 1;
    StubLoop::Timer pause_;
    // Tells what is deferred that we are gone.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace stockade::dns
