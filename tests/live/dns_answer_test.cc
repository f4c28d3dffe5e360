// Sandboxes without a stub: which resolver they may ask, and which addresses its answers open.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/live/answer_fixture.h"

namespace stockade::live {
namespace {

TEST_F(DnsAnswers, ANameOfThePolicyOpensItsAddressAndItsPort) {
    Client client({});
    const Fresh address = FreshAddress(), below = FreshAddress();
    ASSERT_TRUE(client.ok());
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x") << "before it is asked for";
    Resolve(client, "good.test", {Address(AtQuestion(), address.bytes)});
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), ".");
    EXPECT_EQ(client.Do("reach " + address.text + " 444"), "x");
    EXPECT_EQ(client.Do("reach " + FreshAddress().text + " 443"), "x");
    Resolve(client, "a.b.wild.test", {Address(AtQuestion(), below.bytes)});
    EXPECT_EQ(client.Do("reach " + below.text + " 443"), ".");
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_PINNED], 2u);
}

TEST_F(DnsAnswers, AnotherNameOpensNothing) {
    Client client({});
    for (const char* name : {"evil.test", "wild.test", "x.good.test", "good.test.evil.test"}) {
        const Fresh address = FreshAddress();
        Resolve(client, name, {Address(AtQuestion(), address.bytes)});
        EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x") << name;
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_NOT_LISTED], 4u);
}

TEST_F(DnsAnswers, AnotherSandboxHasNothingOfIt) {
    Client client({}), neighbour({});
    const Fresh address = FreshAddress();
    Resolve(client, "good.test", {Address(AtQuestion(), address.bytes)});
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), ".");
    ASSERT_TRUE(neighbour.ok());
    EXPECT_EQ(neighbour.Do("reach " + address.text + " 443"), "x");
}

TEST_F(DnsAnswers, OverIpv6TheSame) {
    Client client({});
    ASSERT_TRUE(client.ok());
    const std::string address("\x2a\x00\x00\x53\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
    EXPECT_EQ(client.Do("reach 2a00:53::1 443"), "x");
    ASSERT_EQ(client.Do("open 1 6"), ".");
    ASSERT_EQ(client.Send(1, kResolver6, 53, WireQuery(0x4601, "good.test", kAaaa)), ".");
    ASSERT_FALSE(world_->resolver6.Hear().empty());
    world_->resolver6.Say(
        AnswerTo(0x4601, "good.test", {{AtQuestion(), kAaaa, 300, address}}, kAaaa).Bytes());
    ASSERT_EQ(client.Do("hear 1"), "4601");
    EXPECT_EQ(client.Do("reach 2a00:53::1 443"), ".");
}

// Aliases as resolvers write them, up to the bound, and one more.
TEST_F(DnsAnswers, AChainOfEightAliasesIsFollowedAndOneOfNineIsDropped) {
    Client client({});
    for (const int aliases : {1, 8, 9}) {
        const Fresh address = FreshAddress();
        std::vector<WireRecord> records;
        for (int i = 0; i < aliases; i++)
            records.push_back(Cname(i ? absl::StrCat("c", i, ".cdn.test") : "good.test",
                                    absl::StrCat("c", i + 1, ".cdn.test")));
        records.push_back(Address(WireName(absl::StrCat("c", aliases, ".cdn.test")), address.bytes));
        if (aliases <= 8) {
            Resolve(client, "good.test", records);
            EXPECT_EQ(client.Do("reach " + address.text + " 443"), ".") << aliases;
            continue;
        }
        const uint16_t id = ++id_;
        Ask(client, "good.test", id);
        world_->resolver.Say(AnswerTo(id, "good.test", records).Bytes());
        world_->resolver.Say("\x77\x77 next");
        EXPECT_EQ(client.Do("hear 0"), "7777") << "what cannot be pinned is not delivered";
        EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x") << aliases;
        EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_BROKEN], 1u);
    }
}

TEST_F(DnsAnswers, RecordsOfANameThatTheChainDoesNotReachCountForNothing) {
    Client client({});
    const Fresh ours = FreshAddress(), theirs = FreshAddress();
    Resolve(client, "good.test",
            {Address(WireName("bank.test"), theirs.bytes), Cname("good.test", "cdn.test"),
             Cname("bank.test", "x.test"), Address(WireName("cdn.test"), ours.bytes),
             Address(WireName("x.test"), theirs.bytes)});
    EXPECT_EQ(client.Do("reach " + ours.text + " 443"), ".");
    EXPECT_EQ(client.Do("reach " + theirs.text + " 443"), "x");
}

// The address of a name must not lead to what is behind it; beside such a one a public address counts.
TEST_F(DnsAnswers, RebindingOpensNothing) {
    Client client({});
    const Fresh good = FreshAddress();
    for (const auto& [text, bytes] :
         {std::pair{"169.254.169.254", Bytes4(169, 254, 169, 254)},
          std::pair{"10.2.3.4", Bytes4(10, 2, 3, 4)}, std::pair{"127.0.0.1", Bytes4(127, 0, 0, 1)}}) {
        Resolve(client, "good.test", {Address(AtQuestion(), bytes)});
        EXPECT_EQ(client.Do(absl::StrCat("reach ", text, " 443")), "x");
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_SCOPE], 3u);
    Resolve(client, "good.test",
            {Address(AtQuestion(), Bytes4(10, 2, 3, 4)), Address(AtQuestion(), good.bytes)});
    EXPECT_EQ(client.Do("reach 10.2.3.4 443"), "x");
    EXPECT_EQ(client.Do("reach " + good.text + " 443"), ".");
    // The control: it is the policy that keeps it closed, and not the network.
    Client open({.network = {"{cidr: 10.0.0.0/8, ports: [443]}"}});
    ASSERT_TRUE(open.ok());
    EXPECT_EQ(open.Do("reach 10.2.3.4 443"), ".");
}

// The addresses that a service's record hints at (RFC 9460), of both families.
TEST_F(DnsAnswers, HintsOfAServiceAreOpenedAndPrivateOnesAreNot) {
    Client client({});
    const Fresh first = FreshAddress(), second = FreshAddress(), behind = FreshAddress();
    const std::string six("\x2a\x00\x00\x53\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
    const std::string service = U16(1) + WireName("") + U16(1) + U16(3) + "\x02h2" + U16(4) + U16(12) +
                                first.bytes + Bytes4(10, 2, 3, 4) + second.bytes + U16(6) + U16(16) + six +
                                U16(4) + U16(400) + behind.bytes;
    Resolve(client, "good.test", {{AtQuestion(), SK_DNS_TYPE_HTTPS, 300, service}}, SK_DNS_TYPE_HTTPS);
    EXPECT_EQ(client.Do("reach " + first.text + " 443"), ".");
    EXPECT_EQ(client.Do("reach " + second.text + " 443"), ".");
    EXPECT_EQ(client.Do("reach 2a00:53::1 443"), ".");
    EXPECT_EQ(client.Do("reach 10.2.3.4 443"), "x");
    EXPECT_EQ(client.Do("reach " + behind.text + " 443"), "x")
        << "behind a parameter that is longer than its record";
}

// From another address, another port, with another id, type or name: each opens nothing, and the right one after it does.
TEST_F(DnsAnswers, AForgedAnswerOpensNothing) {
    Client client({});
    const Fresh forged = FreshAddress(), right = FreshAddress();
    Ask(client, "good.test", 0x5001);
    world_->other.set_peer(world_->resolver.peer());
    world_->elsewhere.set_peer(world_->resolver.peer());
    const auto with = [&](uint16_t id, const char* name, uint16_t type = kA) {
        return AnswerTo(id, name, {Address(AtQuestion(), forged.bytes)}, type).Bytes();
    };
    world_->other.Say(with(0x5001, "good.test"));
    world_->elsewhere.Say(with(0x5001, "good.test"));
    world_->resolver.Say(with(0x5002, "good.test"));
    world_->resolver.Say(with(0x5001, "a.wild.test"));
    world_->resolver.Say(with(0x5001, "good.test", kAaaa));
    for (const char* id : {"5001", "5001", "5002", "5001", "5001"}) EXPECT_EQ(client.Do("hear 0"), id);
    EXPECT_EQ(client.Do("reach " + forged.text + " 443"), "x");
    const std::vector<uint64_t> counted = AnswersSince();
    EXPECT_EQ(counted[SK_DNS_ANSWER_SOURCE], 2u);
    EXPECT_EQ(counted[SK_DNS_ANSWER_UNASKED], 3u);
    world_->resolver.Say(AnswerTo(0x5001, "good.test", {Address(AtQuestion(), right.bytes)}).Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5001");
    EXPECT_EQ(client.Do("reach " + right.text + " 443"), ".");
    // A second answer to the same query is one too many.
    world_->resolver.Say(with(0x5001, "good.test"));
    EXPECT_EQ(client.Do("hear 0"), "5001");
    EXPECT_EQ(client.Do("reach " + forged.text + " 443"), "x");
}

TEST_F(DnsAnswers, WhatWasAskedOnAnotherSocketOpensNothing) {
    Client client({});
    const Fresh address = FreshAddress();
    Ask(client, "other.test", 0x5101);
    const sockaddr_in6 first = world_->resolver.peer();
    ASSERT_EQ(client.Do("open 1 4"), ".");
    ASSERT_EQ(client.Send(1, kResolver, 53, WireQuery(0x5102, "good.test", kA)), ".");
    ASSERT_FALSE(world_->resolver.Hear().empty());
    world_->resolver.set_peer(first);
    world_->resolver.Say(AnswerTo(0x5102, "good.test", {Address(AtQuestion(), address.bytes)}).Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5102");
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x");
}

TEST_F(DnsAnswers, TruncatedNegativeAndBrokenAnswersOpenNothing) {
    Client client({});
    const Fresh address = FreshAddress();
    const std::vector<WireRecord> records = {Address(AtQuestion(), address.bytes)};
    Ask(client, "good.test", 0x5201);
    WireAnswer answer = AnswerTo(0x5201, "good.test", records);
    answer.flags |= SK_DNS_TC;
    world_->resolver.Say(answer.Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5201") << "the client has to see that it is truncated";
    Ask(client, "good.test", 0x5202);
    answer = AnswerTo(0x5202, "good.test", records);
    answer.flags |= 3;
    world_->resolver.Say(answer.Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5202");
    // A record behind the address is cut off: nothing of the answer counts.
    Ask(client, "good.test", 0x5203);
    std::string cut =
        AnswerTo(0x5203, "good.test", {records[0], Address(AtQuestion(), address.bytes)}).Bytes();
    world_->resolver.Say(cut.substr(0, cut.size() - 1));
    world_->resolver.Say("\x77\x77 next");
    EXPECT_EQ(client.Do("hear 0"), "7777");
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x");
    const std::vector<uint64_t> counted = AnswersSince();
    EXPECT_EQ(counted[SK_DNS_ANSWER_TRUNCATED], 1u);
    EXPECT_EQ(counted[SK_DNS_ANSWER_EMPTY], 1u);
    EXPECT_EQ(counted[SK_DNS_ANSWER_BROKEN], 1u);
}

// The first packet of a connection is never ahead of its pin.
TEST_F(DnsAnswers, AThousandFreshNamesEachAtTheFirstTry) {
    Client client({});
    for (int i = 0; i < 1000; i++) {
        const Fresh address = FreshAddress();
        Resolve(client, absl::StrCat("n", i, ".wild.test"), {Address(AtQuestion(), address.bytes, 0)});
        ASSERT_EQ(client.Do("reach " + address.text + " 443"), ".") << i;
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_PINNED], 1000u);
}

TEST_F(DnsAnswers, AnotherServerIsRefused) {
    Client client({});
    const std::string query = WireQuery(1, "good.test", kA);
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    EXPECT_EQ(client.Send(0, kOther, 53, query), "x");
    EXPECT_EQ(client.Do(absl::StrCat("plug 0 ", kOther, " 53")), "x");
    EXPECT_EQ(client.Do(absl::StrCat("reach ", kResolver, " 53")), "x") << "TCP is not metered";
    EXPECT_TRUE(world_->other.Silent());
    EXPECT_EQ(client.Send(0, kResolver, 53, query), ".");
    EXPECT_FALSE(world_->resolver.Hear().empty());
    const Result result = client.Finish();
    EXPECT_NE(result.Find(SK_CODE_SEND_NOT_ALLOWED), nullptr) << result.Describe();
}

// Where the policy has no network section, calls are not refused; the query is.
TEST_F(DnsAnswers, AnotherServerIsRefusedWhateverTheNetworkSectionSays) {
    Client client({.exact = {}, .below = {}, .network_section = false});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    EXPECT_EQ(client.Do("reach 203.0.113.9 443"), ".") << "the control: no section, no refusal";
    EXPECT_EQ(client.Send(0, kOther, 53, WireQuery(1, "good.test", kA)), "x");
    EXPECT_TRUE(world_->other.Silent());
    EXPECT_EQ(client.Send(0, kResolver, 53, WireQuery(1, "good.test", kA)), ".");
    EXPECT_FALSE(world_->resolver.Hear().empty());
    const Result result = client.Finish();
    EXPECT_NE(result.Find(SK_CODE_DNS_SERVER), nullptr) << result.Describe();
}

// A rule by address and port is an answer that opens nothing.
TEST_F(DnsAnswers, AServerThatTheNetworkSectionListsIsHeardAndOpensNothing) {
    Client client({.network = {absl::StrCat("{cidr: ", kOther, "/32, ports: [53]}")}});
    const Fresh address = FreshAddress();
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(client.Send(0, kOther, 53, WireQuery(0x5501, "good.test", kA)), ".");
    ASSERT_FALSE(world_->other.Hear().empty());
    world_->other.Say(AnswerTo(0x5501, "good.test", {Address(AtQuestion(), address.bytes)}).Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5501");
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x");
    EXPECT_EQ(client.Send(0, kOther, 53, WireQuery(0x5502, "good.test", kA) + "x"), "x")
        << "its form is judged as any query's";
}

// Whoever could give itself the resolver's address would open what it likes.
TEST_F(DnsAnswers, ASandboxDoesNotAnswerItself) {
    Client client({.servers = {"127.0.0.9"}, .loopback = {53, 54, 4444}});
    const Fresh address = FreshAddress();
    ASSERT_TRUE(client.ok());
    for (const char* line : {"open 0 4", "bind 0 127.0.0.1 4444", "open 1 4", "bind 1 127.0.0.9 53",
                             "open 2 4", "bind 2 127.0.0.9 54"}) {
        ASSERT_EQ(client.Do(line), ".") << line;
    }
    const std::string answer = AnswerTo(0x5601, "good.test", {Address(AtQuestion(), address.bytes)}).Bytes();
    ASSERT_EQ(client.Send(0, "127.0.0.9", 53, WireQuery(0x5601, "good.test", kA)), ".");
    ASSERT_EQ(client.Do("hear 1"), "5601") << "it is the server, in a network of its own";
    EXPECT_EQ(client.Send(1, "127.0.0.1", 4444, answer), "x");
    EXPECT_EQ(client.Send(2, "127.0.0.1", 4444, answer), ".") << "from another port it may send";
    EXPECT_EQ(client.Do("hear 0"), "5601");
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x");
    const std::vector<uint64_t> counted = AnswersSince();
    EXPECT_EQ(counted[SK_DNS_ANSWER_SELF], 1u);
    EXPECT_EQ(counted[SK_DNS_ANSWER_SOURCE], 1u);
}

// Connected before the sandbox was bound, as in a cgroup that is adopted: no call of its was seen.
TEST_F(DnsAnswers, ASocketFromBeforeIsJudgedByItsAddress) {
    Client client({.answers = false});
    const Fresh address = FreshAddress();
    const std::string query = WireQuery(0x5801, "good.test", kA);
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    ASSERT_EQ(client.Do(absl::StrCat("plug 0 ", kResolver, " 53")), ".");
    ASSERT_TRUE(client.Bind({.servers = {kOther}}).ok());
    EXPECT_EQ(client.Send(0, "-", 0, query), "x") << "no resolver any more";
    ASSERT_TRUE(client.Bind({}).ok());
    EXPECT_EQ(client.Send(0, "-", 0, query), ".");
    ASSERT_FALSE(world_->resolver.Hear().empty());
    world_->resolver.Say(AnswerTo(0x5801, "good.test", {Address(AtQuestion(), address.bytes)}).Bytes());
    EXPECT_EQ(client.Do("hear 0"), "5801");
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), ".");
    // What was opened ends with the binding.
    ASSERT_TRUE(client.Bind({}).ok());
    EXPECT_EQ(client.Do("reach " + address.text + " 443"), "x");
    const Result result = client.Finish();
    EXPECT_NE(result.Find(SK_CODE_DNS_SERVER), nullptr) << result.Describe();
}

// Under `mode: observe` nothing is refused, and nothing is dropped.
TEST_F(DnsAnswers, ObservedNothingIsDropped) {
    Client client({.observe = true});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    EXPECT_EQ(client.Send(0, kOther, 53, WireQuery(0x5701, "good.test", kA)), ".");
    EXPECT_FALSE(world_->other.Hear().empty());
    Ask(client, "good.test", 0x5702);
    const std::string cut =
        AnswerTo(0x5702, "good.test", {Address(AtQuestion(), FreshAddress().bytes)}).Bytes();
    world_->resolver.Say(cut.substr(0, cut.size() - 1));
    EXPECT_EQ(client.Do("hear 0"), "5702");
    const Result result = client.Finish();
    EXPECT_NE(result.Find(SK_CODE_DNS_SERVER), nullptr) << result.Describe();
}

}  // namespace
}  // namespace stockade::live
