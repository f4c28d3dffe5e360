#include "userspace/launch/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/launch/netlink.h"
#include "userspace/launch/network_host.h"

namespace stockade::launch {
namespace {

constexpr const char* kSlotDir = "/run/stockade/net";
// 10.88.0.0/16 in blocks of four addresses; four times as many as sandboxes on a node.
constexpr int kSlots = 16384;
constexpr uint32_t kPool = 0x0a580000;

std::string Dotted(uint32_t address) {
    return absl::StrCat(address >> 24, ".", address >> 16 & 255, ".", address >> 8 & 255, ".", address & 255);
}

NetworkSlot Describe(int number, Fd lock) {
    NetworkSlot slot;
    slot.number = number;
    slot.lock = std::move(lock);
    slot.host_address = Dotted(kPool + static_cast<uint32_t>(number) * 4 + 1);
    slot.sandbox_address = Dotted(kPool + static_cast<uint32_t>(number) * 4 + 2);
    slot.link = absl::StrCat("stk", number);
    slot.table = absl::StrCat("stockade_", number);
    return slot;
}

constexpr size_t kMaxRouteBytes = 64 << 10;  // two lines in a sandbox

std::string SlotFile(int number) { return absl::StrCat(kSlotDir, "/", number); }

// The lock of a slot file that is still the one of that name; not ok() when somebody holds it.
StatusOr<Fd> LockSlot(int number, int flags) {
    auto opened = Fd::Open(SlotFile(number), O_RDWR | O_NOFOLLOW | flags, 0600);
    if (!opened.ok()) return opened.status();
    if (flock(opened->get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return Fd();
        return ErrnoStatus(errno, "lock a network slot");
    }
    struct stat held, named;
    if (fstat(opened->get(), &held) != 0 || stat(SlotFile(number).c_str(), &named) != 0 ||
        held.st_ino != named.st_ino) {
        return Fd();  // removed by its last holder between open and lock
    }
    return *std::move(opened);
}

bool Existed(const Fd& lock) {
    struct stat st;
    return fstat(lock.get(), &st) == 0 && st.st_size > 0;
}

Status MakeSlotDir() {
    if (mkdir("/run/stockade", 0750) != 0 && errno != EEXIST) return ErrnoStatus(errno, "make /run/stockade");
    if (mkdir(kSlotDir, 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, "make /run/stockade/net");
    return absl::OkStatus();
}

std::string Ruleset(const NetworkSlot& slot, bool dns) {
    const std::string& in = slot.link;
    std::string resolver =
        dns ? absl::StrCat("  iifname \"", in, "\" ip daddr ", slot.host_address, " udp dport 53 accept\n",
                           "  iifname \"", in, "\" ip daddr ", slot.host_address, " tcp dport 53 accept\n")
            : "";
    return absl::StrCat(
        "table inet ", slot.table, " {\n",
        // Every address of this host arrives at the input hook, whatever interface carries it. The sandbox's own is
        // for the sandbox: others, programs of this host among them, could ask its resolver in its name.
        " chain input {\n  type filter hook input priority -10; policy accept;\n  iifname != \"", in, "\" ip daddr ",
        slot.host_address, " drop\n", resolver, "  iifname \"",
        in, "\" drop\n }\n", " chain forward {\n  type filter hook forward priority -10; policy accept;\n",
        "  iifname \"", in, "\" ip saddr != ", slot.sandbox_address, " drop\n", "  iifname \"", in,
        "\" ip daddr { 10.88.0.0/16, 127.0.0.0/8 } drop\n", "  iifname \"", in, "\" meta nfproto ipv6 drop\n",
        "  oifname \"", in, "\" ct state established,related accept\n", "  oifname \"", in, "\" drop\n }\n",
        " chain postrouting {\n  type nat hook postrouting priority srcnat; policy accept;\n", "  ip saddr ",
        slot.sandbox_address, " oifname != \"", in, "\" masquerade\n }\n}\n");
}

Status RemoveNetwork(const NetworkSlot& slot) {
    SK_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Create());
    SK_RETURN_IF_ERROR(netlink.DeleteLink(slot.link));
    // The empty declaration makes the removal succeed also where there is none.
    return RunNft(absl::StrCat("table inet ", slot.table, "\ndelete table inet ", slot.table, "\n"));
}

}  // namespace

StatusOr<NetworkSlot> TakeNetworkSlot() {
    SK_RETURN_IF_ERROR(MakeSlotDir());
    for (int number = 0; number < kSlots; ++number) {
        SK_ASSIGN_OR_RETURN(Fd lock, LockSlot(number, O_CREAT));
        if (!lock.ok()) continue;
        const bool leftover = Existed(lock);
        NetworkSlot slot = Describe(number, std::move(lock));
        if (leftover) SK_RETURN_IF_ERROR(RemoveNetwork(slot));
        // From now on the file says that there may be something to clean.
        if (pwrite(slot.lock.get(), "1", 1, 0) != 1) return ErrnoStatus(errno, "mark a network slot");
        return slot;
    }
    return absl::ResourceExhaustedError("all 16,384 network slots are taken");
}

Status ConnectNetwork(const NetworkSlot& slot, int pidfd, bool dns) {
    SK_ASSIGN_OR_RETURN(Fd host_ns, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
    // Rules first: the link must not be open for a moment without them.
    SK_RETURN_IF_ERROR(RunNft(Ruleset(slot, dns)));
    SK_RETURN_IF_ERROR(InNetworkNamespace(pidfd, [&]() -> Status {
        SK_ASSIGN_OR_RETURN(Netlink inside, Netlink::Create());
        SK_RETURN_IF_ERROR(inside.AddVeth("eth0", slot.link, host_ns.get()));
        return inside.AddAddress("eth0", inet_addr(slot.sandbox_address.c_str()), 30);
    }));
    SK_ASSIGN_OR_RETURN(Netlink outside, Netlink::Create());
    SK_RETURN_IF_ERROR(SetUpHostLink(slot.link));
    SK_RETURN_IF_ERROR(outside.AddAddress(slot.link, inet_addr(slot.host_address.c_str()), 30));
    SK_RETURN_IF_ERROR(InNetworkNamespace(pidfd, [&]() -> Status {
        SK_ASSIGN_OR_RETURN(Netlink inside, Netlink::Create());
        return inside.AddDefaultRoute(inet_addr(slot.host_address.c_str()));
    }));
    return StartForwarding(kSlotDir, slot.link);
}

Status DisconnectNetwork(NetworkSlot& slot) {
    if (!slot.ok()) return absl::OkStatus();
    SK_RETURN_IF_ERROR(RemoveNetwork(slot));
    SK_RETURN_IF_ERROR(StopForwarding(kSlotDir, slot.number));
    if (unlink(SlotFile(slot.number).c_str()) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, "remove a network slot");
    }
    slot = NetworkSlot();
    return absl::OkStatus();
}

int CleanNetworks(bool dry_run, std::vector<std::string>* found, std::vector<std::string>* failed) {
    int cleaned = 0;
    for (int number : SlotFiles(kSlotDir)) {
        auto lock = LockSlot(number, 0);
        if (!lock.ok() || !lock->ok()) continue;  // alive, or gone in the meantime
        NetworkSlot slot = Describe(number, *std::move(lock));
        found->push_back(absl::StrCat("network ", slot.link));
        if (dry_run) continue;
        Status status = DisconnectNetwork(slot);
        if (status.ok()) {
            ++cleaned;
        } else {
            failed->push_back(absl::StrCat("network ", number, ": ", status.message()));
        }
    }
    return cleaned;
}

Status InNetworkNamespace(int pidfd, const std::function<Status()>& fn) {
    Status result;
    std::thread worker([&] {
        if (setns(pidfd, CLONE_NEWNET) != 0) {
            result = ErrnoStatus(errno, "enter the sandbox's network namespace");
        } else {
            result = fn();
        }
    });
    worker.join();
    return result;
}

StatusOr<std::string> LinkOf(int pid) {
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat("/proc/", pid, "/net/route"), kMaxRouteBytes));
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
        uint32_t gateway = 0;
        if (words.size() < 3 || words[1] != "00000000" || !absl::SimpleHexAtoi(words[2], &gateway)) continue;
        // As the kernel prints it: the bytes of network order, read as a number of this machine.
        const uint32_t host = ntohl(gateway);
        if ((host & 0xffff0000) != kPool || host % 4 != 1)
            return absl::FailedPreconditionError(absl::StrCat("the default route of ", pid, " leads to no sandbox's link"));
        return absl::StrCat("stk", (host - kPool) / 4);
    }
    return std::string();
}

}  // namespace stockade::launch
