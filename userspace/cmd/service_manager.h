// What systemd is told of the agent (sd_notify(3)): that it is ready, that it lives, that it ends.
//
//   ServiceManager manager = ServiceManager::FromEnvironment();   // silent where nobody listens
//   manager.Ready("backend lsm");  ...  manager.Alive(BootNow());  ...  manager.Stopping();
//
// One thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {

class ServiceManager {
  public:
    ServiceManager() = default;
    // Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: what we start must not speak for us.
    static ServiceManager FromEnvironment();

    void Ready(absl::string_view status);
    // At most so often as the watchdog asks for; else nothing. Called by the event loop itself, so that one that hangs is noticed.
    void Alive(uint64_t now_boot_ns);
    void Stopping();

  private:
    void Say(absl::string_view text);

    Fd socket_;
    std::string address_;       // empty = nobody listens
    uint64_t interval_ns_ = 0;  // 0 = no watchdog
    uint64_t told_ns_ = 0;
};

}  // namespace stockade::cmd
