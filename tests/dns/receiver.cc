#include "tests/dns/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

namespace stockade::tests {

Receiver::Receiver(Fd listener, size_t expected)
    : listener_(std::move(listener)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      expected_(expected),
      thread_([this] { Run(); }) {}

Receiver::~Receiver() {
    (void)eventfd_write(stop_.get(), 1);
    thread_.join();
    for (const auto& [fd, count] : came_) close(fd);
}

void Receiver::Run() {
    for (;;) {
        std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        for (const auto& [fd, count] : came_) fds.push_back({fd, POLLIN, 0});
        (void)poll(fds.data(), fds.size(), -1);
        if (fds[0].revents != 0) return;
        for (size_t i = 2; i < fds.size(); ++i) {
            if (fds[i].revents == 0 || Read(fds[i].fd)) continue;
            close(fds[i].fd);
            came_.erase(fds[i].fd);
        }
        if (fds[1].revents == 0) continue;
        if (const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) came_[fd] = 0;
    }
}

bool Receiver::Read(int fd) {
    char bytes[4096];
    const ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    {
        std::lock_guard lock(mutex_);
        bytes_.append(bytes, static_cast<size_t>(n));
    }
    came_[fd] += static_cast<size_t>(n);
    if (came_[fd] == expected_) (void)send(fd, kWord, sizeof(kWord) - 1, MSG_NOSIGNAL);
    return true;
}

std::string Receiver::Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(bytes_, {});
}

}  // namespace stockade::tests
