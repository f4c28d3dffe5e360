// Datagrams to port 53 of loopback. Standard input: for each its length in two bytes, network order, and itself.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

bool ReadWhole(void* out, size_t size) {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
        const ssize_t n = read(0, at, size);
        if (n <= 0) return false;
        at += n;
        size -= static_cast<size_t>(n);
    }
    return true;
}

// One character for each: '.' it was taken, 'x' EPERM, '?' anything else.
template <typename Address>
int SendAll(int fd, const Address& to) {
    static unsigned char bytes[65536];
    unsigned char head[2];
    while (ReadWhole(head, 2)) {
        const size_t size = static_cast<size_t>(head[0] << 8 | head[1]);
        if (!ReadWhole(bytes, size)) return Setup("read");
        const ssize_t sent = sendto(fd, bytes, size, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
        const char word = sent >= 0 ? '.' : errno == EPERM ? 'x' : '?';
        if (write(1, &word, 1) != 1) return Setup("write");
    }
    return 0;
}

int Dns4(Args) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(53);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return SendAll(socket(AF_INET, SOCK_DGRAM, 0), to);
}

int Dns6(Args) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(53);
    to.sin6_addr = in6addr_loopback;
    return SendAll(socket(AF_INET6, SOCK_DGRAM, 0), to);
}

constexpr Trigger kTriggers[] = {{"dns4", 0, "", Dns4}, {"dns6", 0, "", Dns6}};

}  // namespace

std::span<const Trigger> DnsTriggers() { return kTriggers; }

}  // namespace stockade::triggers
