#include "tests/dns/outside.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/launch/netlink.h"
#include "userspace/launch/network_host.h"

namespace stockade::tests {
namespace {

constexpr char kLink[] = "stkdnsworld";

}  // namespace

StatusOr<Fd> BoundTo(const std::string& address, int port, int type) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_port = htons(static_cast<uint16_t>(port));
    here.sin_addr.s_addr = inet_addr(address.c_str());
    const int yes = 1;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&here), sizeof(here)) != 0)
        return ErrnoStatus(errno, address);
    if (type == SOCK_STREAM && listen(fd.get(), 512) != 0) return ErrnoStatus(errno, "listen");
    return fd;
}

StatusOr<std::unique_ptr<Outside>> Outside::Create() {
    std::unique_ptr<Outside> made(new Outside);
    Status linked;
    // A namespace is that of a thread, and stays for as long as we hold it.
    std::thread([&] { linked = made->MakeLink(); }).join();
    SK_RETURN_IF_ERROR(linked);
    return made;
}

Status Outside::MakeLink() {
    SK_ASSIGN_OR_RETURN(Fd host, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
    SK_ASSIGN_OR_RETURN(launch::Netlink here, launch::Netlink::Create());
    SK_RETURN_IF_ERROR(here.DeleteLink(kLink));
    if (unshare(CLONE_NEWNET) != 0) return ErrnoStatus(errno, "unshare");
    SK_ASSIGN_OR_RETURN(ns_, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
    SK_ASSIGN_OR_RETURN(launch::Netlink inside, launch::Netlink::Create());
    SK_RETURN_IF_ERROR(inside.LinkUp("lo"));
    SK_RETURN_IF_ERROR(inside.AddVeth("eth0", kLink, host.get()));
    for (int host = kFirstHost; host <= kLastHost; ++host)
        SK_RETURN_IF_ERROR(inside.AddAddress("eth0", inet_addr(Host(host).c_str()), 24));
    if (setns(host.get(), CLONE_NEWNET) != 0) return ErrnoStatus(errno, "setns");
    SK_RETURN_IF_ERROR(here.AddAddress(kLink, inet_addr(kHost), 24));
    return launch::SetUpHostLink(kLink);
}

Outside::~Outside() {
    for (const pid_t pid : started_) {
        kill(pid, SIGKILL);
        (void)Wait(pid);
    }
    auto netlink = launch::Netlink::Create();
    if (netlink.ok()) (void)netlink->DeleteLink(kLink);
}

Status Outside::Inside(const std::function<Status()>& fn) const {
    Status status;
    std::thread([&] {
        status = setns(ns_.get(), CLONE_NEWNET) == 0 ? fn() : ErrnoStatus(errno, "setns");
    }).join();
    return status;
}

std::function<void()> Outside::Entry() const {
    return [ns = absl::StrCat("/proc/", getpid(), "/fd/", ns_.get())] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setns(open(ns.c_str(), O_RDONLY | O_CLOEXEC), CLONE_NEWNET) != 0) _exit(98);
    };
}

pid_t Outside::Start(const std::vector<std::string>& argv, const std::string& log) {
    started_.push_back(tests::Start({.argv = argv, .out = log, .err = log + ".err", .in_child = Entry()}));
    return started_.back();
}

}  // namespace stockade::tests
