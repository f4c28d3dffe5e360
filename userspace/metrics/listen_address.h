// Apart from the server: the configuration is read by programs that serve nothing.
#pragma once

#include <sys/socket.h>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::metrics {

struct ListenAddress {
    sockaddr_storage address;
    socklen_t size;
};

// "127.0.0.1:9464", "[::1]:9464". An address is needed: all interfaces must be asked for by name (0.0.0.0), not by forgetting it.
StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

}  // namespace stockade::metrics
