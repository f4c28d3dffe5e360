#include "userspace/metrics/listen_address.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stockade::metrics {

StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
    const Status wrong = absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no address with a port, such as 127.0.0.1:9464 or [::1]:9464"));
    const size_t colon = text.rfind(':');
    uint32_t port = 0;
    if (colon == text.npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 || port > 65535)
        return wrong;
    const std::string host(text.substr(0, colon));
    ListenAddress out{};
    sockaddr_in v4{.sin_family = AF_INET,
                   .sin_port = htons(static_cast<uint16_t>(port)),
                   .sin_addr = {},
                   .sin_zero = {}};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        out.size = sizeof(v4);
        std::memcpy(&out.address, &v4, sizeof(v4));
        return out;
    }
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (!bracketed || inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1)
        return wrong;
    out.size = sizeof(v6);
    std::memcpy(&out.address, &v6, sizeof(v6));
    return out;
}

}  // namespace stockade::metrics
