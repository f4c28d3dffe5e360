#include "userspace/launch/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "userspace/launch/launch_testing.h"
#include "userspace/launch/netlink.h"
#include "userspace/launch/network_host.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;

bool CanMasquerade(std::string* why) {
    Status status = RunNft(
        "table inet stockade_probe {\n chain p {\n type nat hook postrouting priority srcnat;\n"
        "  ip saddr 10.88.255.254 masquerade\n }\n}\ndelete table inet stockade_probe\n");
    *why = std::string(status.message());
    return status.ok();
}

std::string Tables() {
    FILE* pipe = popen("nft list tables 2>/dev/null", "r");
    std::string text;
    char buffer[4096];
    while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
    if (pipe != nullptr) pclose(pipe);
    return text;
}

// Says "hello" to whoever connects to the address; counts them.
class Server {
  public:
    explicit Server(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in local{};
        local.sin_family = AF_INET;
        local.sin_addr.s_addr = inet_addr(address.c_str());
        socklen_t size = sizeof(local);
        EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&local), size), 0) << strerror(errno);
        EXPECT_EQ(listen(fd_.get(), 8), 0);
        getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&local), &size);
        port_ = ntohs(local.sin_port);
        thread_ = std::thread([this] {
            for (;;) {
                Fd peer(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
                if (!peer.ok()) return;
                ++count_;
                (void)WriteAll(peer.get(), "hello");
            }
        });
    }
    ~Server() {
        shutdown(fd_.get(), SHUT_RDWR);
        thread_.join();
    }
    uint16_t port() const { return port_; }
    int count() const { return count_; }

  private:
    Fd fd_;
    uint16_t port_ = 0;
    std::atomic<int> count_{0};
    std::thread thread_;
};

TEST(Network, HostPortIsServedAndOnlyThat) {
    Server asked("127.0.0.1"), other("127.0.0.1");
    NativeSpec spec = MakeSpec({"probe", "connect", "127.0.0.1", std::to_string(asked.port()), "connect",
                                "127.0.0.1", std::to_string(other.port())});
    spec.host_ports = {asked.port()};
    Ran ran = RunSandbox(std::move(spec));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "connect ok\nsaid hello\nconnect ECONNREFUSED\n");
    EXPECT_EQ(asked.count(), 1);
    EXPECT_EQ(other.count(), 0);
}

// A listener whose backlog is full: connections to it neither succeed nor fail.
TEST(Network, APortThatDoesNotAcceptStopsNoOther) {
    Fd deaf(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = inet_addr("127.0.0.1");
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(deaf.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(deaf.get(), 0), 0);
    getsockname(deaf.get(), reinterpret_cast<sockaddr*>(&address), &size);
    std::vector<Fd> fill;
    for (int i = 0; i < 4; ++i) {
        fill.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        (void)connect(fill.back().get(), reinterpret_cast<sockaddr*>(&address), size);
    }
    Server asked("127.0.0.1");
    const uint16_t deaf_port = ntohs(address.sin_port);
    NativeSpec spec = MakeSpec({"probe", "connect", "127.0.0.1", std::to_string(deaf_port), "connect",
                                "127.0.0.1", std::to_string(asked.port())});
    spec.host_ports = {deaf_port, asked.port()};
    const uint64_t start = BootNow();
    Ran ran = RunSandbox(std::move(spec));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "connect ok\nconnect ok\nsaid hello\n");
    EXPECT_LT(BootNow() - start, 30'000'000'000u);
}

// The world outside: a second namespace behind a veth of its own, with a listener in it.
class World {
  public:
    static constexpr const char* kLink = "stktestworld";
    static constexpr const char* kHost = "198.18.77.1";
    static constexpr const char* kOutside = "198.18.77.2";
    World() {
        thread_ = std::thread([this] { Run(); });
        while (!ready_) poll(nullptr, 0, 1);
    }
    ~World() {
        stop_ = true;
        thread_.join();
    }
    const Status& status() const { return status_; }
    uint16_t port() const { return port_; }

  private:
    void Run() {
        status_ = SetUp();
        if (status_.ok()) {
            Server server(kOutside);
            port_ = server.port();
            ready_ = true;
            while (!stop_) poll(nullptr, 0, 2);
        }
        ready_ = true;
    }
    // Leaves the calling thread in the namespace of the world.
    Status SetUp() {
        SK_ASSIGN_OR_RETURN(Fd host, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
        SK_ASSIGN_OR_RETURN(Netlink outside, Netlink::Create());
        if (unshare(CLONE_NEWNET) != 0) return absl::InternalError("unshare");
        SK_ASSIGN_OR_RETURN(Fd world, Fd::Open("/proc/thread-self/ns/net", O_RDONLY));
        SK_ASSIGN_OR_RETURN(Netlink inside, Netlink::Create());
        SK_RETURN_IF_ERROR(inside.AddVeth("eth0", kLink, host.get()));
        SK_RETURN_IF_ERROR(inside.AddAddress("eth0", inet_addr(kOutside), 30));
        if (setns(host.get(), CLONE_NEWNET) != 0) return absl::InternalError("setns");
        SK_RETURN_IF_ERROR(outside.AddAddress(kLink, inet_addr(kHost), 30));
        SK_RETURN_IF_ERROR(SetUpHostLink(kLink));
        return setns(world.get(), CLONE_NEWNET) == 0 ? absl::OkStatus() : absl::InternalError("setns");
    }

    std::thread thread_;
    Status status_;
    std::atomic<bool> ready_{false}, stop_{false};
    uint16_t port_ = 0;
};

TEST(Network, EgressReachesTheWorldAndNothingOfTheHost) {
    std::string why;
    if (!CanMasquerade(&why)) GTEST_SKIP() << "no masquerade on this kernel: " << why;
    World world;
    ASSERT_TRUE(world.status().ok()) << world.status();
    Server on_host(World::kHost);
    const std::string world_port = std::to_string(world.port()), host_port = std::to_string(on_host.port());
    NativeSpec spec = MakeSpec({"probe", "connect", World::kOutside, world_port, "connect", World::kHost,
                                host_port, "connect", "10.88.0.1", host_port});
    spec.egress = Egress::kVeth;
    Ran ran = RunSandbox(std::move(spec));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "connect ok\nsaid hello\nconnect ETIMEDOUT\nconnect ETIMEDOUT\n");
    EXPECT_EQ(on_host.count(), 0);
    EXPECT_THAT(Tables(), testing::Not(HasSubstr("stockade_")));
}

TEST(Network, SlotsAreUniqueAndRemoved) {
    std::string why;
    if (!CanMasquerade(&why)) GTEST_SKIP() << "no masquerade on this kernel: " << why;
    auto make = [] {
        NativeSpec spec = MakeSpec({"probe", "pause"});
        spec.egress = Egress::kVeth;
        return NativeSandbox::Create(std::move(spec));
    };
    auto first = make(), second = make();
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    EXPECT_NE((*first)->host_address(), (*second)->host_address());
    const std::string link =
        "stk" + std::to_string((inet_network((*second)->host_address().c_str()) & 0xffff) / 4);
    EXPECT_NE(if_nametoindex(link.c_str()), 0u);
    ASSERT_TRUE((*second)->Destroy().ok());
    EXPECT_EQ(if_nametoindex(link.c_str()), 0u);
    ASSERT_TRUE((*first)->Destroy().ok());
}

TEST(Network, KilledLauncherLeavesNothingAfterTheNextStart) {
    std::string why;
    if (!CanMasquerade(&why)) GTEST_SKIP() << "no masquerade on this kernel: " << why;
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        NativeSpec spec = MakeSpec({"probe", "pause"});
        spec.egress = Egress::kVeth;
        auto sandbox = NativeSandbox::Create(std::move(spec));
        (void)!write(ready[1], sandbox.ok() ? "1" : "0", 1);
        for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    ASSERT_EQ(byte, '1');
    EXPECT_THAT(Tables(), HasSubstr("stockade_"));
    kill(launcher, SIGKILL);
    waitpid(launcher, nullptr, 0);
    Leftovers left;
    EXPECT_TRUE(Eventually([&] {
        Leftovers more = CleanLeftovers(TestHome());
        left.networks += more.networks;
        left.cgroups += more.cgroups;
        return left.networks >= 1 && left.cgroups >= 1;
    }));
    EXPECT_THAT(Tables(), testing::Not(HasSubstr("stockade_")));
}

}  // namespace
}  // namespace stockade::launch
