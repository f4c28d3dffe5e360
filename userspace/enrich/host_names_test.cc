#include "userspace/enrich/host_names.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::enrich {
namespace {

v1::Event Connect(const std::string& sandbox, const std::string& address, uint64_t boot_ns = 100) {
    v1::Event event;
    event.set_boot_ns(boot_ns);
    event.mutable_sandbox()->set_id(sandbox);
    event.mutable_net()->set_op("connect");
    event.mutable_net()->set_address(address);
    return event;
}

std::string NameIn(const HostNames& names, const std::string& sandbox, const std::string& address, uint64_t boot_ns = 100) {
    v1::Event event = Connect(sandbox, address, boot_ns);
    const bool known = names.Enrich(&event, nullptr);
    EXPECT_EQ(known, !event.net().host_name().empty());
    return event.net().host_name();
}

TEST(HostNames, AConnectionHasTheNameThatLedThisSandboxThere) {
    HostNames names({});
    names.Learn("a", "192.0.2.1", "one.test", 1);
    names.Learn("a", "2001:db8::1", "one.test", 1);
    names.Learn("b", "192.0.2.1", "other.test", 1);
    EXPECT_EQ(NameIn(names, "a", "192.0.2.1"), "one.test");
    EXPECT_EQ(NameIn(names, "a", "2001:db8::1"), "one.test");
    EXPECT_EQ(NameIn(names, "b", "192.0.2.1"), "other.test");
    EXPECT_EQ(NameIn(names, "c", "192.0.2.1"), "");
    EXPECT_EQ(NameIn(names, "a", "192.0.2.2"), "");
    names.Learn("a", "192.0.2.1", "two.test", 1);
    EXPECT_EQ(NameIn(names, "a", "192.0.2.1"), "two.test") << "the last one";
    names.Forget("a");
    EXPECT_EQ(NameIn(names, "a", "192.0.2.1"), "");
    EXPECT_EQ(NameIn(names, "b", "192.0.2.1"), "other.test");
    EXPECT_EQ(names.size(), 1u);
}

// Events come late, answers at once.
TEST(HostNames, TheNameIsThatOfTheTimeOfTheConnection) {
    HostNames names({.max_names = 3});
    names.Learn("a", "192.0.2.1", "one.test", 10);
    names.Learn("a", "192.0.2.1", "two.test", 20);
    names.Learn("a", "192.0.2.1", "two.test", 25);
    names.Learn("a", "192.0.2.1", "one.test", 30);
    const auto at = [&](uint64_t boot_ns) { return NameIn(names, "a", "192.0.2.1", boot_ns); };
    EXPECT_EQ(at(9), "");
    EXPECT_EQ(at(10), "one.test");
    EXPECT_EQ(at(22), "two.test");
    EXPECT_EQ(at(30), "one.test");
    names.Learn("a", "192.0.2.1", "three.test", 40);
    EXPECT_EQ(at(15), "") << "the oldest went";
    EXPECT_EQ(at(22), "two.test");
    EXPECT_EQ(at(41), "three.test");
    EXPECT_EQ(names.size(), 1u);
}

TEST(HostNames, WhatIsNoConnectionHasNone) {
    HostNames names({});
    names.Learn("a", "", "one.test", 1);
    v1::Event event;
    event.mutable_sandbox()->set_id("a");
    EXPECT_FALSE(names.Enrich(&event, nullptr));
    EXPECT_FALSE(event.has_net());
    EXPECT_EQ(NameIn(names, "a", ""), "") << "a unix socket has no address";
}

TEST(HostNames, TheOriginalAndTheMarkOfEscapes) {
    HostNames names({});
    names.Learn("a", "192.0.2.1", "x\\046y.test", 1);
    v1::Event event = Connect("a", "192.0.2.1"), original = event;
    EXPECT_TRUE(names.Enrich(&event, &original));
    for (const v1::Event& each : {event, original}) {
        EXPECT_EQ(each.net().host_name(), "x\\046y.test");
        EXPECT_TRUE(each.net().escaped());
    }
}

TEST(HostNames, ItsBoundsAreEachSandboxsOwnAndAreCounted) {
    HostNames names({.max_addresses = 3, .max_all = 4});
    for (int i = 0; i < 3; ++i) names.Learn("a", absl::StrCat("192.0.2.", i), "a.test", 1);
    EXPECT_EQ(names.counters().forgotten, 0u);
    names.Learn("a", "192.0.2.3", "a.test", 1);
    EXPECT_EQ(names.counters().forgotten, 3u);
    EXPECT_EQ(NameIn(names, "a", "192.0.2.0"), "");
    EXPECT_EQ(NameIn(names, "a", "192.0.2.3"), "a.test");
    for (int i = 0; i < 3; ++i) names.Learn("b", absl::StrCat("192.0.2.", i), "b.test", 1);
    EXPECT_EQ(names.size(), 4u);
    names.Learn("c", "192.0.2.1", "c.test", 1);
    EXPECT_EQ(names.counters().refused, 1u);
    EXPECT_EQ(NameIn(names, "c", "192.0.2.1"), "");
    EXPECT_EQ(NameIn(names, "a", "192.0.2.3"), "a.test") << "nobody else's go";
    names.Forget("c");
    names.Forget("b");
    names.Learn("c", "192.0.2.1", "c.test", 1);
    EXPECT_EQ(NameIn(names, "c", "192.0.2.1"), "c.test");
}

}  // namespace
}  // namespace stockade::enrich
