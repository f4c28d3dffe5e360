// The network of a sandbox: nothing, or a veth with masquerade; ports of the host's loopback.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// A /30 of 10.88.0.0/16 (16,384 slots): .1 is the host's end, .2 the sandbox's. Held by a lock on
// a file of its own, which outlives a killed launcher as a file and not as a lock: that is how
// leftovers are told from the living.
struct NetworkSlot {
    int number = -1;
    Fd lock;
    std::string host_address;  // "10.88.x.y"
    std::string sandbox_address;
    std::string link;   // "stk<number>"
    std::string table;  // nftables: "stockade_<number>"
    bool ok() const { return number >= 0; }
};

// Takes a free slot, cleaning what a killed launcher left in it.
StatusOr<NetworkSlot> TakeNetworkSlot();
// Makes the veth, moves one end behind the pidfd, and masquerades: the sandbox reaches what lies
// outside this host, none of the host's own addresses, no other sandbox; port 53 of host_address
// when `dns`.
Status ConnectNetwork(const NetworkSlot& slot, int pidfd, bool dns);
// Removes and looks that it is gone; idempotent.
Status DisconnectNetwork(NetworkSlot& slot);
// Removes what is left of slots whose launcher is gone; returns how many, failures in `failed`.
// With `dry_run` none is. Their links' names go to `found`.
int CleanNetworks(bool dry_run, std::vector<std::string>* found, std::vector<std::string>* failed);

// The host's end of the veth that leads out of a task's network namespace, by its default route; empty where it has
// none. `pid` must be a sandbox's, of a namespace whose routes it cannot change.
StatusOr<std::string> LinkOf(int pid);

// Serves ports of the sandbox's 127.0.0.1 from the host's. One thread; at most kMaxForwarded
// connections, more are closed at once.
class HostForwarder {
  public:
    static StatusOr<std::unique_ptr<HostForwarder>> Create(int pidfd, const std::vector<uint16_t>& ports);
    ~HostForwarder();

  private:
    HostForwarder() = default;
    void Run();
    std::vector<Fd> listeners_;
    std::vector<uint16_t> ports_;
    Fd stop_;  // eventfd
    std::thread thread_;
};
inline constexpr size_t kMaxForwarded = 256;

// Runs `fn` on a thread of its own inside the network namespace behind the pidfd.
Status InNetworkNamespace(int pidfd, const std::function<Status()>& fn);

}  // namespace stockade::launch
