#include "tests/dns/web.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::tests {
namespace {

constexpr size_t kMaxRequest = 16 << 10;

// Up to the empty line; "" for a client that says too much or nothing for 10 s.
std::string ReadRequest(int fd) {
    const timeval patience = {10, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    std::string request;
    while (!absl::StrContains(request, "\r\n\r\n")) {
        char bytes[4096];
        const ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        if (n <= 0 || request.size() > kMaxRequest) return "";
        request.append(bytes, static_cast<size_t>(n));
    }
    return request;
}

std::string Response(const std::string& status, const std::string& body) {
    return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: text/plain\r\nContent-Length: ", body.size(),
                        "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

Web::Web(Fd listener)
    : listener_(std::move(listener)), stop_(eventfd(0, EFD_CLOEXEC)), thread_([this] { Serve(); }) {}

Web::~Web() {
    (void)eventfd_write(stop_.get(), 1);
    thread_.join();
}

void Web::Publish(const std::string& directory) {
    std::lock_guard lock(mutex_);
    directory_ = directory;
}

void Web::Serve() {
    for (;;) {
        pollfd fds[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        (void)poll(fds, 2, -1);
        if (fds[0].revents != 0) return;
        const Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer.ok()) continue;
        const std::string request = ReadRequest(peer.get());
        std::string answer = request.empty() ? "" : Answer(request);
        while (!answer.empty()) {
            const ssize_t n = send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
            if (n <= 0) break;
            answer.erase(0, static_cast<size_t>(n));
        }
    }
}

std::string Web::Answer(const std::string& request) {
    const std::vector<std::string> words = absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    if (words.size() != 3 || words[0] != "GET" || absl::StrContains(words[1], ".."))
        return Response("400 Bad Request", "");
    const std::string path = words[1].substr(0, words[1].find('?'));
    if (path == "/") return Response("200 OK", "hello\n");
    std::lock_guard lock(mutex_);
    std::ifstream file(directory_ + path, std::ios::binary);
    if (!file || file.peek() == EOF) return Response("404 Not Found", "");
    return Response("200 OK", std::string(std::istreambuf_iterator(file), {}));
}

}  // namespace stockade::tests
