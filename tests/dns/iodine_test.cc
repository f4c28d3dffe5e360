// iodine, a tunnel for all of IP: its server behind a real resolver, its client in a bound cgroup. It needs a tun
// device and CAP_NET_ADMIN, which no launched sandbox has, so the sandbox is made with the Sensor alone. Both runs of
// a request type differ in the mode of dns only: what the policy lets iodine do beside it is the same.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/wire/dns.h"
#include "tests/dns/outside.h"
#include "tests/dns/receiver.h"
#include "tests/dns/unbound.h"
#include "tests/live/dns_world.h"
#include "tests/live/sandbox.h"
#include "userspace/base/errno.h"

namespace stockade::tests {
namespace {

constexpr char kZone[] = "iodine.test", kInner[] = "10.99.0.1", kUp[] = "Connection setup complete";
constexpr int kServerPort = 5302, kReceiverPort = 9000;
constexpr size_t kFileBytes = 3000;

// Request types, and names short enough for the meter to take them: with the probing for the size of answers, which
// uses the budget up, and without.
constexpr const char* kForms[] = {"NULL",  "TXT", "SRV",        "MX",
                                  "CNAME", "A",   "NULL -M 64", "NULL -M 64 -m 100"};

// Into the network behind this tunnel's device, as soon as there is one: it comes before the tunnel. What comes back.
std::string SendThrough(const std::string& device, const std::string& file) {
    if (!Until([&] { return if_nametoindex(device.c_str()) != 0; })) return "no device";
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(kReceiverPort);
    to.sin_addr.s_addr = inet_addr(kInner);
    const timeval patience = {20, 0};
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device.data(),
                   static_cast<socklen_t>(device.size())) != 0)
        return absl::StrCat("bind: ", strerror(errno));
    // The device comes before its address.
    int error = 0;
    (void)Until([&] {
        error = connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 ? 0 : errno;
        return error != ENETUNREACH;
    });
    if (error != 0) return absl::StrCat("connect: ", strerror(error));
    if (!WriteAll(fd.get(), file).ok()) return absl::StrCat("send: ", strerror(errno));
    char word[sizeof(Receiver::kWord)] = {};
    return recv(fd.get(), word, sizeof(word) - 1, MSG_WAITALL) > 0 ? word
                                                                   : absl::StrCat("recv: ", strerror(errno));
}

struct Client {
    std::string form, device;
    kernel::DnsBudgetRef budget;
    std::unique_ptr<live::Sandbox> sandbox;
    bool up = false;
    std::string answer;  // of SendThrough
    std::vector<sk_dns> queries;
    std::string said;

    int Count(bool refused) const {
        return static_cast<int>(std::count_if(queries.begin(), queries.end(), [&](const sk_dns& q) {
            return (q.head.code != SK_CODE_OK) == refused;
        }));
    }
};

class Iodine : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        for (size_t i = 0; i < kFileBytes; ++i) file_.push_back(static_cast<char>(i * 2654435761u >> 13));
        world_ = live::DnsWorld::Create();  // from here on in a network namespace of our own
        status_ = world_ ? StartServers() : absl::UnavailableError("no sensor");
    }
    static void TearDownTestSuite() {
        delete receiver_;
        unbound_.reset();
        outside_.reset();
        world_.reset();
        (void)unlink(log_.c_str());
        (void)unlink((log_ + ".err").c_str());
    }
    static Status StartServers() {
        SK_ASSIGN_OR_RETURN(outside_, Outside::Create());
        SK_RETURN_IF_ERROR(outside_->Inside([]() -> Status {
            SK_ASSIGN_OR_RETURN(Fd listener, BoundTo("0.0.0.0", kReceiverPort, SOCK_STREAM));
            receiver_ = new Receiver(std::move(listener), kFileBytes);
            return absl::OkStatus();
        }));
        log_ = absl::StrCat("/tmp/stockade-iodined.", getpid());
        outside_->Start({"/usr/sbin/iodined", "-f", "-c", "-p", absl::StrCat(kServerPort), "-l", "127.0.0.1",
                         "-P", "secret", absl::StrCat(kInner, "/27"), kZone},
                        log_);
        if (!Until([] { return absl::StrContains(ReadText(log_ + ".err"), "Listening to dns"); }))
            return absl::UnavailableError("iodined (./dev setup installs it) does not start: " +
                                          ReadText(log_ + ".err"));
        SK_ASSIGN_OR_RETURN(unbound_, Unbound::Start({.address = Outside::kAddress,
                                                      .port = 53,
                                                      .stubs = {{kZone, kServerPort}},
                                                      .in_child = outside_->Entry()}));
        return absl::OkStatus();
    }
    void SetUp() override { ASSERT_TRUE(status_.ok()) << status_; }

    // A client that is at work, or null and a failure.
    static std::unique_ptr<Client> Begin(const std::string& form, sk_dns_mode mode) {
        static int number = 0;
        auto client = std::make_unique<Client>();
        client->form = form;
        client->device = absl::StrCat("tunnel", ++number);
        const live::Policy policy{
            .exec = {"/usr/**"}, .libraries = {"/usr/**"}, .read = {"/**"}, .write = {"/dev/**"}};
        client->sandbox = std::make_unique<live::Sandbox>(
            policy, std::vector<std::string>{
                        "exec", "/usr/bin/sh", "-c",
                        absl::StrCat("exec 2>&1; PATH=/usr/sbin:/usr/bin exec iodine -f -r -P secret -d ",
                                     client->device, " -T ", form, " ", Outside::kAddress, " ", kZone)});
        auto budget = world_->OpenBudget({});
        EXPECT_TRUE(budget.ok()) << budget.status();
        if (!client->sandbox->ok() || !budget.ok()) return nullptr;
        client->budget = *budget;
        const kernel::DnsBinding binding{.mode = mode,
                                         .servers = {{.hi = 0, .lo = ntohl(inet_addr(Outside::kAddress))}},
                                         .tcp = false,
                                         .answers = false,
                                         .rules = {},
                                         .pins = {},
                                         .budget = *budget};
        const Status bound = live::TheSensor()->BindDns(client->sandbox->ref(), binding);
        EXPECT_TRUE(bound.ok()) << bound;
        client->sandbox->Go();
        return client;
    }
    // Whether the tunnel says that it stands. Its own retries end within the minute.
    static bool AwaitUp(Client& client) {
        for (int i = 0; i < 4 && !client.up; ++i) client.up = client.sandbox->WaitOutput(kUp);
        return client.up;
    }
    // All of them, whose records come by one way.
    static void Finish(std::vector<std::unique_ptr<Client>>& clients) {
        for (auto& client : clients) kill(client->sandbox->pid(), SIGTERM);
        std::vector<live::Record> records = live::DrainRecords();
        for (auto& client : clients) {
            live::Result result = client->sandbox->Finish();
            client->said = result.Describe().substr(0, 4000);
            records.insert(records.end(), result.records.begin(), result.records.end());
            for (const live::Record& record : records) {
                if (record.head.kind == SK_KIND_DNS && record.head.slot == result.ref.slot &&
                    record.head.generation == result.ref.generation)
                    std::memcpy(&client->queries.emplace_back(), record.bytes.data(), sizeof(sk_dns));
            }
            EXPECT_TRUE(live::TheSensor()->CloseDnsBudget(client->budget).ok());
        }
    }

    static inline std::unique_ptr<live::DnsWorld> world_;
    static inline std::unique_ptr<Outside> outside_;
    static inline std::unique_ptr<Unbound> unbound_;
    static inline Receiver* receiver_;
    static inline std::string file_, log_;
    static inline Status status_;
};

TEST_F(Iodine, CarriesNothing) {
    for (const char* form : kForms) {
        SCOPED_TRACE(form);
        std::vector<std::unique_ptr<Client>> control;
        control.push_back(Begin(form, SK_DNS_OBSERVE));
        ASSERT_NE(control[0], nullptr);
        if (AwaitUp(*control[0])) control[0]->answer = SendThrough(control[0]->device, file_);
        Finish(control);
        EXPECT_EQ(control[0]->answer, Receiver::kWord) << control[0]->said;
        EXPECT_EQ(receiver_->Take(), file_) << "intact where nothing stops it";
    }
    // All at once: each spends most of its time with waiting for answers that do not come.
    std::vector<std::unique_ptr<Client>> clients;
    for (const char* form : kForms) {
        clients.push_back(Begin(form, SK_DNS_OPEN));
        ASSERT_NE(clients.back(), nullptr) << form;
    }
    std::vector<std::thread> senders;
    for (auto& client : clients) {
        senders.emplace_back([&client] { client->answer = SendThrough(client->device, file_); });
    }
    for (auto& client : clients) (void)AwaitUp(*client);
    for (std::thread& sender : senders) sender.join();
    Finish(clients);
    EXPECT_EQ(receiver_->Take(), "");
    for (const auto& client : clients) {
        SCOPED_TRACE(client->form);
        EXPECT_NE(client->answer, Receiver::kWord) << client->said;
        EXPECT_GE(client->Count(true), 5) << client->said;
        const sk_dns* last = nullptr;
        bool blocked = false;
        for (const sk_dns& query : client->queries) {
            if (query.head.code == SK_CODE_OK) continue;
            blocked |=
                query.head.code == SK_CODE_DNS_ZONE_BLOCKED || query.head.code == SK_CODE_DNS_ZONE_BUDGET;
            if (absl::EndsWith(live::NameAt(query, 0), kZone)) last = &query;
        }
        ASSERT_NE(last, nullptr) << "an event names the zone";
        // Names too long or not canonical leave the budget alone.
        if (absl::StrContains(client->form, "-M")) {
            EXPECT_TRUE(blocked) << client->said;
        }
        std::cout << client->form << ": " << file_.size()
                  << " bytes arrive under observe, 0 under enforcement; "
                  << (client->up ? "set up" : "never set up") << ", " << client->Count(false)
                  << " queries left, " << client->Count(true) << " refused, "
                  << (blocked ? "zone blocked" : "zone not blocked") << ", spent "
                  << last->spent / SK_DNS_BYTE << " B, " << client->answer << "\n";
    }
}

}  // namespace
}  // namespace stockade::tests
