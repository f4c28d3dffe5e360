// Budgets between the kernel's maps and the disk: with the real maps, and nobody who asks.
#include "userspace/cmd/dns_budgets.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/dns/knowledge.h"

namespace stockade::cmd {
namespace {

class DnsBudgetsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_budgets_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        auto sensor = kernel::Sensor::Create({.pin_dir = ""});
        ASSERT_TRUE(sensor.ok()) << sensor.status();
        sensor_ = *std::move(sensor);
        auto knowledge = dns::MakeKnowledge({});
        ASSERT_TRUE(knowledge.ok()) << knowledge.status();
        knowledge_ = std::make_unique<dns::Knowledge>(*std::move(knowledge));
        auto ledger = DnsLedger::Open({.dir = dir_ + "/budgets"});
        ASSERT_TRUE(ledger.ok()) << ledger.status();
        ledger_ = std::make_unique<DnsLedger>(*std::move(ledger));
        auto budgets = DnsBudgets::Create({.sensor = sensor_.get(), .knowledge = knowledge_.get(), .publish = [](v1::Event) {},
                                           .file = dir_ + "/numbers", .ledger = ledger_.get()});
        ASSERT_TRUE(budgets.ok()) << budgets.status();
        budgets_ = *std::move(budgets);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    // A session of which an earlier kernel knew two zones.
    void Spent(const std::string& id) {
        sandbox::v1::StoredDnsBudget stored;
        stored.set_id(id);
        stored.set_total(900);
        stored.set_total_budget(1000);
        stored.set_zone_budget(800);
        for (uint32_t i = 0; i < 2; ++i) {
            auto& zone = *stored.add_zones();
            zone.set_zone(0xabc0 + i);
            zone.set_spent(400 + i);
            zone.set_names(3);
            zone.set_asked(true);
            zone.set_blocked(i == 1);
        }
        ASSERT_TRUE(ledger_->Write(stored).ok());
    }
    // As the kernel has them, by zone.
    std::map<uint64_t, sk_dns_zone> Zones(const kernel::DnsBudgetRef& ref) const {
        std::map<uint64_t, sk_dns_zone> out;
        const auto zones = sensor_->ReadDnsZones();
        EXPECT_TRUE(zones.ok()) << zones.status();
        for (const auto& zone : *zones) {
            if (zone.budget.number == ref.number) out[zone.zone] = zone.spent;
        }
        return out;
    }
    void UseAndRelease(int first, int count) {
        for (int i = first; i < first + count; ++i) {
            const std::string id = absl::StrCat("session other ", i);
            ASSERT_TRUE(budgets_->Use(id, {}, true).ok()) << id;
            budgets_->Release(id);
        }
    }

    std::string dir_;
    std::unique_ptr<kernel::Sensor> sensor_;
    std::unique_ptr<dns::Knowledge> knowledge_;
    std::unique_ptr<DnsLedger> ledger_;
    std::unique_ptr<DnsBudgets> budgets_;
};

TEST_F(DnsBudgetsTest, AnIdleSessionGoesToDiskAndComesBackAsItWas) {
    Spent("session a");
    const auto first = budgets_->Use("session a", {}, true);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto zones = Zones(*first);
    ASSERT_EQ(zones.size(), 2u);
    EXPECT_EQ(zones.at(0xabc0).spent, 400u);
    EXPECT_EQ(zones.at(0xabc1).blocked, 1);
    EXPECT_NE(zones.at(0xabc0).last_ns, 0u);
    budgets_->Release("session a");
    ASSERT_TRUE(sensor_->ReadDnsBudget(*first).ok()) << "it stays while there is room";

    UseAndRelease(0, 1100);
    EXPECT_TRUE(absl::IsNotFound(sensor_->ReadDnsBudget(*first).status())) << "the one that was used least lately";
    const auto again = budgets_->Use("session a", {.zone = 1 << 20, .total = 1 << 20}, true);
    ASSERT_TRUE(again.ok()) << again.status();
    const auto credit = sensor_->ReadDnsBudget(*again);
    ASSERT_TRUE(credit.ok());
    EXPECT_EQ(credit->total, 900u);
    EXPECT_EQ(credit->total_budget, 1000u) << "what its first sandbox was given";
    EXPECT_EQ(credit->zones, 2u);
    EXPECT_EQ(Zones(*again).at(0xabc1).spent, 401u);
}

// Whoever calls Keep is not held up by a thousand files; what it has not come to yet is written at the end.
TEST_F(DnsBudgetsTest, WhatWasSpentGoesToDiskAFewSessionsAtATime) {
    const auto on_disk = [&] {
        return std::distance(std::filesystem::directory_iterator(dir_ + "/budgets"), std::filesystem::directory_iterator());
    };
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(budgets_->Use(absl::StrCat("session ", i), {}, true).ok());
    ASSERT_EQ(on_disk(), 10) << "a session begins there";
    std::filesystem::remove_all(dir_ + "/budgets");
    std::filesystem::create_directory(dir_ + "/budgets");
    budgets_->Keep();
    EXPECT_EQ(on_disk(), 4);
    budgets_->Keep();
    EXPECT_EQ(on_disk(), 8);
    budgets_->KeepAll();
    EXPECT_EQ(on_disk(), 10);
}

TEST_F(DnsBudgetsTest, AFullKernelPutsIdleSessionsAwayAndRefusesThenByName) {
    UseAndRelease(0, 10);
    for (int i = 0; i < SK_DNS_BUDGETS - 1; ++i) {
        const auto used = budgets_->Use(absl::StrCat("sandbox ", i), {}, false);
        ASSERT_TRUE(used.ok()) << i << " " << used.status();
    }
    const auto more = budgets_->Use("sandbox more", {}, false);
    ASSERT_FALSE(more.ok());
    EXPECT_TRUE(absl::StrContains(more.status().message(), "all 4096 DNS budgets are in use")) << more.status();
    budgets_->Release("sandbox 7");
    EXPECT_TRUE(budgets_->Use("session other 3", {}, true).ok());
}

TEST_F(DnsBudgetsTest, WhatCannotBeKeptDoesNotBegin) {
    std::filesystem::remove_all(dir_ + "/budgets");
    EXPECT_FALSE(budgets_->Use("session a", {}, true).ok());
    EXPECT_TRUE(budgets_->Use("sandbox a", {}, false).ok()) << "of a sandbox alone nothing is kept";
}

}  // namespace
}  // namespace stockade::cmd
