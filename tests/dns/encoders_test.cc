// Senders of every kind that we know (encoders.py), in `stockade run`. What counts is what their receiver, the name
// server of the zone, reads: all of the file where nothing stops it, and under enforcement at most 256 bytes a zone
// and 2 KiB in all, whatever the encoding, the pace, the number of zones and of sandboxes.
#include <bpf/bpf.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_zone.h"
#include "tests/dns/world.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000, kDayNs = 24 * 60 * kMinuteNs;
constexpr size_t kZoneBytes = 256, kTotalBytes = 2048;

struct Read {
    size_t bytes = 0;  // of information, at most
    std::string hex;
    std::map<std::string, size_t> queries;  // by zone
};

class Encoders : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        product_ = new Product;
        world_ = new World;
        product_->Put("in/encoders.py", ReadText(SourcePath("tests/dns/encoders.py")));
    }
    static void TearDownTestSuite() {
        delete product_;
        delete world_;
    }
    void SetUp() override {
        ASSERT_TRUE(world_->status().ok()) << world_->status();
        (void)world_->TakeQueries();
        world_->OnQuery(nullptr);
    }
    static std::string Policy(const std::string& spec) {
        return product_->Put(
            "policy.yaml",
            absl::StrCat(
                "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: encoders}\nspec:\n",
                "  violation: deny\n  exec: {allow: [/usr/**], libraries: [/usr/**]}\n"
                "  files: {read: [/**]}\n  network: {allow: []}\n",
                spec));
    }
    // `size` bytes without structure; what comes back is them in hexadecimal digits.
    static std::string PutSecret(size_t size) {
        std::string data, hex;
        uint64_t state = 0x2545f4914f6cdd1d;
        for (size_t i = 0; i < size; ++i) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            data.push_back(static_cast<char>(state >> 32));
            absl::StrAppend(&hex, absl::Hex(static_cast<uint8_t>(data.back()), absl::kZeroPad2));
        }
        product_->Put("in/file", data);
        return hex;
    }
    static std::vector<std::string> Sender(const std::string& name, const std::string& zone,
                                           const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = {"python3", "/in/encoders.py", "send", name, zone, "/in/file"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    static std::vector<std::string> Flags(const std::vector<std::string>& more = {}) {
        std::vector<std::string> flags = {"--in", product_->Path("in")};
        flags.insert(flags.end(), more.begin(), more.end());
        return flags;
    }
    static Ran Send(const std::string& policy, const std::vector<std::string>& sender,
                    const std::vector<std::string>& flags = {}) {
        const Ran ran = product_->Run(policy, sender, Flags(flags));
        EXPECT_EQ(ran.status, 0) << ran.Text();
        return ran;
    }
    static size_t RefusedNames(const Ran& ran, const std::string& zone) {
        size_t count = 0;
        for (const Json& event : ran.events)
            count += At(event, "kind") == "dns" && At(event, "verdict") != "allow" &&
                     absl::EndsWith(At(event, "dns.name"), zone);
        return count;
    }
    // What the receiver makes of all that came since the last call.
    static Read Receive(const std::string& name, const std::string& zone) {
        Read read;
        std::string lines;
        for (const World::Query& query : world_->TakeQueries()) {
            absl::StrAppend(&lines, query.name, " ", query.type, "\n");
            const std::vector<std::string> labels = absl::StrSplit(query.name, '.');
            if (labels.size() > 1) ++read.queries[labels[labels.size() - 2]];
        }
        WriteText(product_->Path("arrivals"), lines);
        const int status =
            Wait(Start({.argv = {"/usr/bin/python3", product_->Path("in/encoders.py"), "read", name, zone},
                        .in = product_->Path("arrivals"),
                        .out = product_->Path("read"),
                        .err = product_->Path("read.err")}));
        EXPECT_EQ(status, 0) << product_->Get("read.err");
        const std::vector<std::string> words = absl::StrSplit(product_->Get("read"), absl::ByAnyChar(" \n"));
        size_t bits = 0;
        EXPECT_TRUE(words.size() >= 2 && absl::SimpleAtoi(words[0], &bits)) << product_->Get("read");
        read.bytes = (bits + 7) / 8;
        read.hex = words.size() >= 2 ? words[1] : "";
        return read;
    }
    static inline Product* product_;
    static inline World* world_;
    static inline const std::string kDns =
        absl::StrCat("  dns: {mode: open, resolvers: [", World::kResolver, "]}\n");
    // Straight to the name server, past the stub and its cache: every name is asked.
    static inline const std::string kObserve = absl::StrCat("  mode: observe\n", kDns);
};

TEST_F(Encoders, TellAZoneAtMostItsBudget) {
    const std::string secret = PutSecret(600);
    for (const char* name : {"0.repeat.test", "1.repeat.test"}) world_->Answer(name, "203.0.113.9", 0);
    for (const char* name :
         {"dnsexfiltrator", "base64", "base32", "hex", "hex4", "dnscat2", "oast", "frameworkpos",
          "multigrain", "ebury", "decimal", "words", "case", "qtype", "alphabet16", "repeat"}) {
        SCOPED_TRACE(name);
        const std::string zone = absl::StrCat(name, ".test");
        Send(Policy(kObserve), Sender(name, zone, {World::kOutside}));
        const Read control = Receive(name, zone);
        EXPECT_EQ(control.hex.substr(0, secret.size()), secret) << "whole where nothing stops it";

        const Ran ran = Send(Policy(kDns), Sender(name, zone));
        const Read read = Receive(name, zone);
        EXPECT_LE(read.bytes, kZoneBytes);
        // Two names that are repeated the stub's cache answers, whatever their TTL: nothing of it is asked.
        EXPECT_TRUE(RefusedNames(ran, zone) > 0 || absl::string_view(name) == "repeat") << ran.Text();
        std::cout << name << ": " << control.bytes << " bytes under observe, " << read.bytes
                  << " under enforcement in " << (read.queries.empty() ? 0 : read.queries.begin()->second)
                  << " queries\n";
    }
}

// The policy opens no address: the stub is the only resolver.
TEST_F(Encoders, ThatGoStraightToANameServerTellNothing) {
    PutSecret(600);
    const Ran ran = Send(Policy(kDns), Sender("hex", "straight.test", {World::kOutside}));
    EXPECT_EQ(Receive("hex", "straight.test").bytes, 0u) << ran.Text();
}

TEST_F(Encoders, TellAHundredZonesAtMostTheTotal) {
    const std::string secret = PutSecret(9000), zone = "evil*.test";
    Send(Policy(kObserve), Sender("hop", zone, {World::kOutside}));
    EXPECT_EQ(Receive("hop", zone).hex, secret);
    Send(Policy(kDns), Sender("hop", zone));
    const Read read = Receive("hop", zone);
    EXPECT_LE(read.bytes, kTotalBytes);
    EXPECT_GE(read.bytes, kZoneBytes) << "there are zones enough";
    for (const auto& [name, queries] : read.queries) EXPECT_LE(queries * 30, kZoneBytes) << name;
    std::cout << "hop: " << read.bytes << " of 9000 bytes, in " << read.queries.size() << " zones\n";
}

// A piece from each of a hundred sandboxes. What makes them one sender is the session: without it all arrives.
TEST_F(Encoders, TellAZoneNoMoreFromAHundredSandboxes) {
    constexpr int kSandboxes = 100, kAtOnce = 4;
    const std::string secret = PutSecret(40 * kSandboxes), policy = Policy(kDns);
    const auto all = [&](const std::vector<std::string>& flags) {
        for (int i = 0; i < kSandboxes; i += kAtOnce) {
            std::vector<std::pair<pid_t, std::string>> runs;
            for (int k = i; k < i + kAtOnce; ++k) {
                const std::string tag = absl::StrCat("many", k);
                runs.emplace_back(
                    product_->StartRun(
                        policy, Sender("hex", "many.test", {"-", absl::StrCat(k), absl::StrCat(k + 1)}), tag,
                        Flags(flags)),
                    tag);
            }
            for (const auto& [pid, tag] : runs) {
                const Ran ran = product_->Finish(pid, tag);
                EXPECT_EQ(ran.status, 0) << ran.Text();
            }
        }
        return Receive("hex", "many.test");
    };
    EXPECT_EQ(all({}).hex, secret) << "each its own budget";
    const Read read = all({"--session", "many"});
    EXPECT_LE(read.bytes, kZoneBytes);
    EXPECT_GE(read.bytes, 40u);
    std::cout << "a hundred sandboxes of one session: " << read.bytes << " of 4000 bytes; of none: 4000\n";
}

// The kernel's meter knows time as the difference to two moments of its maps: of a zone's last query, and of the
// budget's beginning. To set both back is to set the clock forward. The agent's clock goes on as it was: it takes the
// pauses for short ones, and gives back more of a charge than it would.
class Clock {
  public:
    explicit Clock(const std::string& pin_dir) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(pin_dir)) {
            if (entry.path().filename() == "dns_zones") zones_ = Fd(bpf_obj_get(entry.path().c_str()));
            if (entry.path().filename() == "dns_budgets") budgets_ = Fd(bpf_obj_get(entry.path().c_str()));
        }
    }
    bool ok() const { return zones_.ok() && budgets_.ok(); }
    // While no query is on its way to be charged.
    void Advance(uint64_t ns) const {
        sk_dns_zone_key key{}, next;
        for (const sk_dns_zone_key* at = nullptr; bpf_map_get_next_key(zones_.get(), at, &next) == 0;
             at = &key) {
            key = next;
            sk_dns_zone zone;
            if (bpf_map_lookup_elem(zones_.get(), &key, &zone) != 0 || zone.last_ns == 0) continue;
            zone.last_ns -= ns;
            EXPECT_EQ(bpf_map_update_elem(zones_.get(), &key, &zone, BPF_EXIST), 0);
        }
        for (uint32_t number = 1; number < SK_DNS_BUDGETS; ++number) {
            sk_dns_budget budget;
            if (bpf_map_lookup_elem(budgets_.get(), &number, &budget) != 0 || budget.epoch_ns == 0) continue;
            budget.epoch_ns -= ns;
            EXPECT_EQ(bpf_map_update_elem(budgets_.get(), &number, &budget, BPF_ANY), 0);
        }
    }

  private:
    Fd zones_, budgets_;
};

TEST_F(Encoders, TellAZoneNoMoreAtAQueryPerTenMinutes) {
    PutSecret(4000);
    const std::string policy = Policy(
        absl::StrCat("  dns: {mode: open, resolvers: [", World::kResolver, "], budget: {ranked: 256B}}\n"));
    const std::vector<std::string> session = {"--session", "slow"};
    Send(policy, Sender("hex4", "slow.test", {"-", "0", "1"}), session);  // the agent, and its maps
    const Clock clock(product_->pin_dir());
    ASSERT_TRUE(clock.ok());
    world_->OnQuery([&](const World::Query&) { clock.Advance(10 * kMinuteNs); });
    Send(policy, Sender("hex4", "slow.test"), session);
    const Read read = Receive("hex4", "slow.test");
    EXPECT_LE(read.bytes, kZoneBytes);
    EXPECT_GE(read.queries.at("slow"), 10u);
    std::cout << "a query per ten minutes: " << read.bytes << " of 4000 bytes in "
              << read.queries.at("slow") * 10 << " minutes\n";

    // Nor after days, which is where the budget of a ranked zone begins anew: the clock does go.
    world_->OnQuery(nullptr);
    Send(policy, Sender("hex", "google.com"), session);
    const size_t day = Receive("hex", "google.com").bytes;
    EXPECT_GE(day, 40u);
    EXPECT_LE(day, kZoneBytes);
    Send(policy, Sender("hex", "google.com"), session);
    EXPECT_EQ(Receive("hex", "google.com").bytes, 0u);
    clock.Advance(3 * kDayNs);
    Send(policy, Sender("hex", "google.com"), session);
    EXPECT_GE(Receive("hex", "google.com").bytes, 40u);
    Send(policy, Sender("hex", "slow.test"), session);
    EXPECT_EQ(Receive("hex", "slow.test").bytes, 0u);
}

}  // namespace
}  // namespace stockade::tests
