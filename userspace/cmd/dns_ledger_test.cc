#include "userspace/cmd/dns_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {
namespace {

namespace fs = std::filesystem;
using sandbox::v1::StoredDnsBudget;

class DnsLedgerTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_ledger_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override { fs::remove_all(dir_); }
    DnsLedger Open(size_t most = 10) const { return *DnsLedger::Open({.dir = dir_ + "/budgets", .max_budgets = most}); }
    static StoredDnsBudget Budget(const std::string& id, int zones) {
        StoredDnsBudget out;
        out.set_id(id);
        out.set_total(77);
        out.set_zone_budget(UINT32_MAX);
        for (int i = 0; i < zones; ++i) {
            auto& zone = *out.add_zones();
            zone.set_zone(UINT64_MAX - static_cast<uint64_t>(i));
            zone.set_spent(UINT32_MAX);
            zone.set_names(UINT32_MAX);
            zone.set_asked(true);
            zone.set_blocked(true);
        }
        return out;
    }
    fs::path OnlyFile() const { return fs::directory_iterator(dir_ + "/budgets")->path(); }
    std::string dir_;
};

TEST_F(DnsLedgerTest, WhatWasWrittenIsReadByTheNext) {
    const StoredDnsBudget most = Budget(absl::StrCat("session ", std::string(128, 's')), SK_DNS_BUDGET_ZONES + 2);
    ASSERT_TRUE(Open().Write(most).ok());
    const auto found = Open().Read(most.id());
    ASSERT_TRUE(found.ok() && *found) << found.status();
    EXPECT_EQ((*found)->SerializeAsString(), most.SerializeAsString());
    const auto other = Open().Read("session t");
    ASSERT_TRUE(other.ok());
    EXPECT_FALSE(*other);
    EXPECT_EQ(fs::status(OnlyFile()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(DnsLedgerTest, ADamagedFileIsNoFreshBudget) {
    DnsLedger ledger = Open();
    ASSERT_TRUE(ledger.Write(Budget("session s", 3)).ok());
    const fs::path file = OnlyFile();
    const std::string whole = *ReadFile(file, 1 << 16);
    const auto put = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes; };
    for (size_t cut = 0; cut < whole.size(); ++cut) {
        put(whole.substr(0, cut));
        const auto found = ledger.Read("session s");
        ASSERT_TRUE(absl::IsDataLoss(found.status())) << cut;
        EXPECT_THAT(std::string(found.status().message()), testing::HasSubstr(file.string()));
    }
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
        std::string bytes = whole;
        bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
        put(bytes);
        ASSERT_TRUE(absl::IsDataLoss(ledger.Read("session s").status())) << bit;
    }
    put(whole + "x");
    EXPECT_FALSE(ledger.Read("session s").ok());
    put(whole);
    EXPECT_TRUE(ledger.Read("session s").ok());
}

TEST_F(DnsLedgerTest, AnotherSessionsFileIsNoneOfThisOne) {
    DnsLedger ledger = Open();
    ASSERT_TRUE(ledger.Write(Budget("session a", 1)).ok());
    const fs::path a = OnlyFile();
    ASSERT_TRUE(ledger.Write(Budget("session b", 1)).ok());
    for (const auto& file : fs::directory_iterator(dir_ + "/budgets")) {
        if (file.path() != a) fs::copy_file(a, file.path(), fs::copy_options::overwrite_existing);
    }
    EXPECT_TRUE(ledger.Read("session a").ok());
    EXPECT_TRUE(absl::IsDataLoss(ledger.Read("session b").status()));
}

TEST_F(DnsLedgerTest, ItsBoundHoldsForNewOnes) {
    DnsLedger ledger = Open(2);
    ASSERT_TRUE(ledger.Write(Budget("session a", 1)).ok());
    ASSERT_TRUE(ledger.Write(Budget("session b", 1)).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(ledger.Write(Budget("session c", 1))));
    EXPECT_TRUE(ledger.Write(Budget("session a", 2)).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(Open(2).Write(Budget("session c", 1)))) << "counted when it is opened";
}

TEST_F(DnsLedgerTest, WhatIsOldIsForgotten) {
    ASSERT_TRUE(Open().Write(Budget("session a", 1)).ok());
    const fs::path a = OnlyFile();
    ASSERT_TRUE(Open().Write(Budget("session b", 1)).ok());
    fs::last_write_time(a, fs::file_time_type::clock::now() - std::chrono::hours(24 * 29));
    EXPECT_TRUE(*Open().Read("session a"));
    fs::last_write_time(a, fs::file_time_type::clock::now() - std::chrono::hours(24 * 31));
    EXPECT_FALSE(*Open().Read("session a"));
    EXPECT_TRUE(*Open().Read("session b"));
}

// What lies on the disk is moved instead of the clock, which others use as well.
TEST_F(DnsLedgerTest, AClockThatJumpsGivesNobodyAFreshBudget) {
    const auto now = fs::file_time_type::clock::now();
    ASSERT_TRUE(Open().Write(Budget("session a", 1)).ok());
    const fs::path a = OnlyFile();
    ASSERT_TRUE(Open().Write(Budget("session b", 1)).ok());
    const auto move = [&](std::chrono::hours by) {
        for (const auto& file : fs::directory_iterator(dir_ + "/budgets")) fs::last_write_time(file.path(), now + by);
    };
    for (const int years : {-10, 10}) {  // as the clock went ahead, and back
        move(std::chrono::hours(24 * 365 * years));
        EXPECT_TRUE(*Open().Read("session a")) << years;
        EXPECT_TRUE(*Open().Read("session b")) << years;
    }
    // One of them was written while the clock was ahead: the other is not old for that.
    fs::last_write_time(a, now);
    EXPECT_TRUE(*Open().Read("session a"));
    EXPECT_TRUE(*Open().Read("session b"));
}

TEST_F(DnsLedgerTest, HashKeysStay) {
    const std::string state = dir_ + "/state";
    ASSERT_TRUE(ReadHashKeys(state).ok());
    EXPECT_FALSE(*ReadHashKeys(state));
    sk_hash_keys keys{};
    std::memset(&keys, 7, sizeof(keys));
    ASSERT_TRUE(KeepHashKeys(state, keys).ok());
    sk_hash_keys others{};
    ASSERT_TRUE(KeepHashKeys(state, others).ok());
    const auto found = ReadHashKeys(state);
    ASSERT_TRUE(found.ok() && *found);
    EXPECT_EQ(std::memcmp(&**found, &keys, sizeof(keys)), 0);
    fs::resize_file(state + "/hash_keys", sizeof(keys) - 1);
    EXPECT_TRUE(absl::IsDataLoss(ReadHashKeys(state).status()));
}

}  // namespace
}  // namespace stockade::cmd
