// Prometheus' scrape endpoint.
//
//   SK_ASSIGN_OR_RETURN(auto server, Server::Start("127.0.0.1:9464"));
//   server->Publish(families);     // once a second; a scrape gets the latest
//
// Threads: the HTTP server's own, which see no more of the agent than what was published. A client that is slow, hostile or never
// ends costs one of them until kRequestMs is over; who scrapes meanwhile waits, and nobody else.
#pragma once

#include <memory>
#include <string>

#include "userspace/base/status.h"
#include "userspace/metrics/publisher.h"

namespace stockade::metrics {

class Server : public Publisher {
  public:
    // `address`: as ParseListenAddress takes it. After capabilities are dropped: threads keep what they had. kUnavailable where the address is taken.
    static StatusOr<std::unique_ptr<Server>> Start(const std::string& address);
};

}  // namespace stockade::metrics
