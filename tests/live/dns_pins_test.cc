// How many addresses and queries are remembered without a stub, for how long, and what is done about the one too many.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/live/answer_fixture.h"
#include "userspace/base/clock.h"

namespace stockade::live {
namespace {

TEST_F(DnsAnswers, SixtyAddressesAreOpened) {
    Client client({});
    std::vector<WireRecord> records;
    std::vector<Fresh> addresses;
    for (int i = 0; i < 60; i++) {
        addresses.push_back(FreshAddress());
        records.push_back(Address(AtQuestion(), addresses.back().bytes));
    }
    Resolve(client, "good.test", records);
    for (const Fresh& address : addresses)
        EXPECT_EQ(client.Do("reach " + address.text + " 443"), ".") << address.text;
}

// All rules that cover a name count, each with its own ports; two of one name are one.
TEST_F(DnsAnswers, EachRuleOpensItsPorts) {
    Client client({});
    ASSERT_TRUE(client.ok());
    ASSERT_TRUE(client
                    .Bind({.exact = {"a.b.test"},
                           .below = {},
                           .opens = {{"a.b.test", false, {1001, 443}},
                                     {"a.b.test", true, {1002}},
                                     {"b.test", true, {1003}},
                                     {"b.test", false, {1004}},
                                     {"test", true, {1005}}}})
                    .ok());
    const Fresh address = FreshAddress();
    Resolve(client, "a.b.test", {Address(AtQuestion(), address.bytes)});
    // Nobody listens but at 443.
    for (const auto& [port, word] :
         {std::pair{443, "."}, std::pair{1001, "?"}, std::pair{1002, "x"}, std::pair{1003, "?"},
          std::pair{1004, "x"}, std::pair{1005, "?"}, std::pair{1006, "x"}}) {
        EXPECT_EQ(client.Do(absl::StrCat("reach ", address.text, " ", port)), word) << port;
    }
    // Port 0 opens all but those that carry names.
    ASSERT_TRUE(client.Bind({.exact = {}, .below = {}, .opens = {{"test", true, {0}}}}).ok());
    Resolve(client, "a.b.test", {Address(AtQuestion(), address.bytes)});
    EXPECT_EQ(client.Do("reach " + address.text + " 1006"), "?");
    EXPECT_EQ(client.Do("reach " + address.text + " 853"), "x");
    std::vector<uint16_t> ports(SK_DNS_RULE_PORTS);
    for (size_t i = 0; i < ports.size(); i++) ports[i] = static_cast<uint16_t>(2000 + i);
    EXPECT_TRUE(
        client.Bind({.exact = {}, .below = {}, .opens = {{"test", true, ports}, {"test", false, {1}}}}).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(
        client.Bind({.exact = {}, .below = {}, .opens = {{"test", true, ports}, {"test", true, {1}}}})));
}

// More queries at once than a socket remembers: the oldest is forgotten, and told.
TEST_F(DnsAnswers, AQueryThatIsForgottenIsCounted) {
    Client client({});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    for (uint16_t i = 0; i <= SK_DNS_ASKS; i++) {
        ASSERT_EQ(
            client.Send(0, kResolver, 53,
                        WireQuery(static_cast<uint16_t>(0x5300 + i), absl::StrCat("n", i, ".wild.test"), kA)),
            ".");
        ASSERT_FALSE(world_->resolver.Hear().empty());
    }
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_FORGOTTEN], 1u);
    for (const uint16_t i : {uint16_t{0}, uint16_t{1}, uint16_t{SK_DNS_ASKS}}) {
        const Fresh address = FreshAddress();
        const auto id = static_cast<uint16_t>(0x5300 + i);
        world_->resolver.Say(
            AnswerTo(id, absl::StrCat("n", i, ".wild.test"), {Address(AtQuestion(), address.bytes)}).Bytes());
        EXPECT_EQ(client.Do("hear 0"), absl::StrCat(absl::Hex(id, absl::kZeroPad4)));
        EXPECT_EQ(client.Do("reach " + address.text + " 443"), i == 0 ? "x" : ".") << i;
    }
}

// A sandbox has so many addresses at once and no more; the answer that would be one too many is dropped.
TEST_F(DnsAnswers, TheAddressesOfASandboxAreBounded) {
    Client client({}), neighbour({});
    for (int i = 0; i < SK_DNS_PINS / SK_DNS_ANSWER_RECORDS; i++) {
        std::vector<WireRecord> records;
        for (int k = 0; k < SK_DNS_ANSWER_RECORDS; k++)
            records.push_back(Address(AtQuestion(), FreshAddress().bytes));
        Resolve(client, "good.test", records);
    }
    const Fresh one_more = FreshAddress();
    Ask(client, "good.test", 0x5401);
    world_->resolver.Say(AnswerTo(0x5401, "good.test", {Address(AtQuestion(), one_more.bytes)}).Bytes());
    world_->resolver.Say("\x77\x77 next");
    EXPECT_EQ(client.Do("hear 0"), "7777");
    EXPECT_EQ(client.Do("reach " + one_more.text + " 443"), "x");
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_NO_ROOM], 1u);
    Resolve(neighbour, "good.test", {Address(AtQuestion(), one_more.bytes)});
    EXPECT_EQ(neighbour.Do("reach " + one_more.text + " 443"), ".");
}

// The map of pins that has this address; -1 = none has. By id, as the sensor lends no descriptor.
Fd PinsWith(const sk_dns_pin_key& key, sk_dns_pin* pin) {
    uint32_t id = 0;
    while (bpf_map_get_next_id(id, &id) == 0) {
        Fd fd(bpf_map_get_fd_by_id(id));
        bpf_map_info info{};
        uint32_t size = sizeof(info);
        if (fd.ok() && bpf_obj_get_info_by_fd(fd.get(), &info, &size) == 0 &&
            absl::string_view(info.name) == "dns_pins" && bpf_map_lookup_elem(fd.get(), &key, pin) == 0)
            return fd;
    }
    return Fd();
}

sk_dns_pin_key KeyOf(const Client& client, const Fresh& address) {
    const uint64_t word = sk_dns_u32(reinterpret_cast<const uint8_t*>(address.bytes.data()));
    return {.hi = 0,
            .lo = word,
            .slot = client.ref().slot,
            .generation = client.ref().generation,
            .port = 443,
            .family = AF_INET};
}

// For as long as the answer, at least five minutes and at most a day, and a minute more.
TEST_F(DnsAnswers, APinLivesAsLongAsItsAnswer) {
    Client client({});
    for (const auto& [ttl_s, seconds] : {std::pair{0u, 360u}, std::pair{299u, 360u}, std::pair{4000u, 4060u},
                                         std::pair{0x7fffffffu, 86460u}}) {
        const Fresh address = FreshAddress();
        const uint64_t before = BootNow();
        Resolve(client, "good.test", {Address(AtQuestion(), address.bytes, ttl_s)});
        sk_dns_pin pin{};
        ASSERT_TRUE(PinsWith(KeyOf(client, address), &pin).ok());
        EXPECT_GE(pin.until_ns, before + seconds * 1'000'000'000ull);
        EXPECT_LE(pin.until_ns, BootNow() + seconds * 1'000'000'000ull);
    }
    // The least of a chain.
    const Fresh address = FreshAddress();
    Resolve(client, "good.test",
            {Cname("good.test", "cdn.test", 1000), Address(WireName("cdn.test"), address.bytes, 4000)});
    sk_dns_pin pin{};
    ASSERT_TRUE(PinsWith(KeyOf(client, address), &pin).ok());
    EXPECT_LE(pin.until_ns, BootNow() + 1060 * 1'000'000'000ull);
}

// It is over, and then its place is another's, whether or not an agent is there.
TEST_F(DnsAnswers, APinThatIsOverIsShutAndMakesRoom) {
    Client client({});
    std::vector<Fresh> addresses;
    for (int i = 0; i < SK_DNS_PINS / SK_DNS_ANSWER_RECORDS; i++) {
        std::vector<WireRecord> records;
        for (int k = 0; k < SK_DNS_ANSWER_RECORDS; k++) {
            addresses.push_back(FreshAddress());
            records.push_back(Address(AtQuestion(), addresses.back().bytes));
        }
        Resolve(client, "good.test", records);
    }
    const Fresh &first = addresses[0], one_more = FreshAddress();
    EXPECT_EQ(client.Do("reach " + first.text + " 443"), ".");
    const sk_dns_pin_key key = KeyOf(client, first);
    sk_dns_pin pin{};
    const Fd pins = PinsWith(key, &pin);
    ASSERT_TRUE(pins.ok());
    pin.until_ns = BootNow();
    ASSERT_EQ(bpf_map_update_elem(pins.get(), &key, &pin, BPF_EXIST), 0);
    EXPECT_EQ(client.Do("reach " + first.text + " 443"), "x");
    Resolve(client, "good.test", {Address(AtQuestion(), one_more.bytes)});
    EXPECT_EQ(client.Do("reach " + one_more.text + " 443"), ".");
    EXPECT_NE(bpf_map_lookup_elem(pins.get(), &key, &pin), 0) << "the ring has taken it away";
    EXPECT_EQ(AnswersSince()[SK_DNS_ANSWER_NO_ROOM], 0u);
}

}  // namespace
}  // namespace stockade::live
