// Where another program writes a backend's address for a service's into the calls of a sandbox: the verdict is of
// what the sandbox asked for.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "bpf/service.skel.h"
#include "tests/dns/dns_wire.h"
#include "tests/live/answer_world.h"

namespace stockade::live {
namespace {

constexpr uint16_t kA = SK_DNS_TYPE_A;

std::string AnswerTo(uint16_t id, const std::string& name, const std::string& address) {
    WireAnswer answer;
    answer.id = id;
    answer.name = name;
    answer.answers = {ARecord(AtQuestion(), address)};
    return answer.Bytes();
}

class DnsService : public ::testing::Test {
  protected:
    void SetUp() override {
        world_ = AnswerWorld::Get();
        ASSERT_NE(world_, nullptr);
        service_ = service__open_and_load();
        ASSERT_NE(service_, nullptr);
        auto outer = Fd::Open(OuterCgroup(), O_RDONLY | O_DIRECTORY);
        ASSERT_TRUE(outer.ok()) << outer.status();
        bpf_program* program = nullptr;
        bpf_object__for_each_program(program, service_->obj) {
            links_.push_back(bpf_program__attach_cgroup(program, outer->get()));
            ASSERT_NE(links_.back(), nullptr) << bpf_program__name(program);
        }
        (void)AnswersSince();
    }
    void TearDown() override {
        for (bpf_link* link : links_) {
            EXPECT_EQ(bpf_link__destroy(link), 0);
        }
        service__destroy(service_);
    }
    AnswerWorld* world_ = nullptr;
    service* service_ = nullptr;
    std::vector<bpf_link*> links_;
};

TEST_F(DnsService, TheBackendsAnswerOpensWhatTheServiceWasAskedFor) {
    Client client({.servers = {kService}});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(client.Do("open 1 4"), ".");
    ASSERT_EQ(client.Do(absl::StrCat("plug 1 ", kService, " 53")), ".");
    for (const auto& [socket, to, port, id, address] :
         {std::tuple{0, kService, 53, 0x6001, "203.200.0.1"}, std::tuple{1, "-", 0, 0x6002, "203.200.0.2"}}) {
        const auto query = WireQuery(static_cast<uint16_t>(id), "good.test", kA);
        ASSERT_EQ(client.Send(socket, to, port, query), ".");
        ASSERT_EQ(world_->backend.Hear(), query);
        world_->backend.Say(AnswerTo(static_cast<uint16_t>(id), "good.test",
                                     std::string("\xcb\xc8\0", 3) + static_cast<char>(socket + 1)));
        EXPECT_EQ(client.Do(absl::StrCat("hear ", socket)), absl::StrCat(absl::Hex(id)));
        EXPECT_EQ(client.Do(absl::StrCat("reach ", address, " 443")), ".");
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_PINNED], 2u);
}

TEST_F(DnsService, FormAndBudgetHoldAtWhateverPortTheBackendHas) {
    Client client({.servers = {kService}});
    const std::string query = WireQuery(0x6101, "good.test", kA);
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    EXPECT_EQ(client.Send(0, kService, 53, query + "x"), "x");
    EXPECT_EQ(client.Send(0, kService, 53, query), ".");
    EXPECT_EQ(world_->backend.Hear(), query);
    EXPECT_TRUE(world_->backend.Silent());
    const Result result = client.Finish();
    EXPECT_NE(result.Find(SK_CODE_DNS_FORM), nullptr) << result.Describe();
}

// Asked for directly the backend is no resolver, whether nothing lists it or the network section does.
TEST_F(DnsService, TheBackendItselfIsNoResolver) {
    Client client({.servers = {kService}}),
        listed({.network = {absl::StrCat("{cidr: ", kBackend, "/32, ports: [", kBackendPort, "]}")},
                .servers = {kService}});
    const std::string query = WireQuery(0x6201, "good.test", kA);
    ASSERT_TRUE(client.ok() && listed.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(listed.Do("open 0 4"), ".");
    EXPECT_EQ(client.Send(0, kBackend, kBackendPort, query), "x");
    EXPECT_TRUE(world_->backend.Silent());
    EXPECT_EQ(listed.Send(0, kBackend, kBackendPort, query), ".");
    EXPECT_EQ(world_->backend.Hear(), query);
    world_->backend.Say(AnswerTo(0x6201, "good.test", std::string("\xcb\xc8\x01\x01", 4)));
    EXPECT_EQ(listed.Do("hear 0"), "6201");
    EXPECT_EQ(listed.Do("reach 203.200.1.1 443"), "x");
}

// A socket that asked the service once is a resolver's for good: another thread's call in between does not make its
// queries something else.
TEST_F(DnsService, ASocketOfTheServiceSendsNothingButQueries) {
    Client client(
        {.network = {absl::StrCat("{cidr: ", kResolver, "/32, ports: [5300]}")}, .servers = {kService}});
    const std::string query = WireQuery(0x6301, "good.test", kA);
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(client.Do("open 1 4"), ".");
    EXPECT_EQ(client.Send(1, kResolver, 5300, "free"), ".") << "the control: a socket of its own";
    EXPECT_EQ(world_->elsewhere.Hear(), "free");
    ASSERT_EQ(client.Send(0, kService, 53, query), ".");
    ASSERT_EQ(world_->backend.Hear(), query);
    EXPECT_EQ(client.Send(0, kResolver, 5300, "free"), "x");
    EXPECT_TRUE(world_->elsewhere.Silent());
    // From here on its packets are no longer known to be the service's, and the answers open nothing.
    ASSERT_EQ(client.Send(0, kService, 53, WireQuery(0x6302, "good.test", kA)), ".");
    ASSERT_FALSE(world_->backend.Hear().empty());
    world_->backend.Say(AnswerTo(0x6302, "good.test", std::string("\xcb\xc8\x02\x01", 4)));
    EXPECT_EQ(client.Do("hear 0"), "6302");
    EXPECT_EQ(client.Do("reach 203.200.2.1 443"), "x");
}

TEST_F(DnsService, AForgedAnswerOpensNothing) {
    Client client({.servers = {kService}});
    const std::string query = WireQuery(0x6401, "good.test", kA);
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(client.Send(0, kService, 53, query), ".");
    ASSERT_EQ(world_->backend.Hear(), query);
    for (Server* forger : {&world_->other, &world_->resolver, &world_->elsewhere}) {
        forger->set_peer(world_->backend.peer());
        forger->Say(AnswerTo(0x6401, "good.test", std::string("\xcb\xc8\x03\x01", 4)));
        EXPECT_EQ(client.Do("hear 0"), "6401");
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_SOURCE], 3u);
    EXPECT_EQ(client.Do("reach 203.200.3.1 443"), "x");
}

}  // namespace
}  // namespace stockade::live
