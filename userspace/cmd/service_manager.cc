#include "userspace/cmd/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

std::string Take(const char* name) {
    const char* value = std::getenv(name);
    std::string out = value == nullptr ? "" : value;
    (void)unsetenv(name);
    return out;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
    ServiceManager manager;
    const std::string address = Take("NOTIFY_SOCKET"), interval_us = Take("WATCHDOG_USEC"),
                      pid = Take("WATCHDOG_PID");
    // sd_notify(3): a path, or an abstract name behind '@'.
    if (address.size() < 2 || address.size() >= sizeof(sockaddr_un::sun_path) ||
        (address[0] != '/' && address[0] != '@'))
        return manager;
    manager.socket_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!manager.socket_.ok()) return manager;
    manager.address_ = address;
    uint64_t us = 0;
    int watched = 0;
    if (!absl::SimpleAtoi(interval_us, &us)) return manager;
    if (!pid.empty() && (!absl::SimpleAtoi(pid, &watched) || watched != getpid())) return manager;
    manager.interval_ns_ = us * 1000 / 2;  // as sd_watchdog_enabled(3) recommends
    return manager;
}

void ServiceManager::Say(absl::string_view text) {
    if (address_.empty()) return;
    sockaddr_un to{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(to.sun_path, address_.data(), address_.size());
    if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
    // A service manager that does not read must not hold the agent; it is told again with the next sign of life.
    (void)sendto(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&to), size);
}

void ServiceManager::Ready(absl::string_view status) { Say(absl::StrCat("READY=1\nSTATUS=", status)); }

void ServiceManager::Alive(uint64_t now_boot_ns) {
    if (interval_ns_ == 0 || (told_ns_ != 0 && now_boot_ns - told_ns_ < interval_ns_)) return;
    told_ns_ = now_boot_ns;
    Say("WATCHDOG=1");
}

void ServiceManager::Stopping() { Say("STOPPING=1"); }

}  // namespace stockade::cmd
