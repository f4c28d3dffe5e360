// Floods of queries while user space stands still: what leaves stays within the credit, and so does what is kept of it.
#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_zone.h"
#include "tests/dns/world.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

// Sends one datagram for each name, without waiting for an answer, and says for each flood how many the kernel let
// pass and how many it refused, and how many a second that were.
constexpr char kFlood[] =
    "import os, socket, struct, sys, time\n"
    "server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]\n"
    "def query(name):\n"
    "    return struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0\\0\\1\\0\\1'\n"
    "print('up', flush=True)\n"
    "while not os.path.exists('/in/go'): time.sleep(0.02)\n"
    "def flood(what, names):\n"
    "    messages, passed, began = [query(n) for n in names], 0, 0\n"
    "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "    s.connect((server, 53))\n"
    "    began = time.monotonic()\n"
    "    refused = 0\n"
    "    for m in messages:\n"
    "        try:\n"
    "            s.send(m)\n"
    "            passed += 1\n"
    "        except PermissionError: refused += 1\n"
    "    print(what, passed, refused, int(len(messages) / (time.monotonic() - began)), flush=True)\n"
    "flood('names', [os.urandom(20).hex() + '.flood.test' for i in range(100000)])\n"
    "flood('zones', ['z%05d.test' % i for i in range(100000)])\n"
    "while not os.path.exists('/in/end'): time.sleep(0.02)\n";

struct Flood {
    int passed = 0, refused = 0, per_second = 0;
};

class DnsFloods : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(world_.status().ok()) << world_.status();
        (void)product_.Put("in/here", "");
    }
    std::string Policy(const std::string& mode) {
        return product_.Put(mode + ".yaml", absl::StrCat(
            "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", mode, "}\nspec:\n  violation: deny\n"
            "  exec: {allow: [/usr/**], libraries: [/usr/**]}\n  files: {read: [/**]}\n  dns: {mode: ", mode,
            ", resolvers: [", World::kResolver, "]}\n"));
    }
    // The agent is stopped from before the first query to after the last.
    std::map<std::string, Flood> Run(const std::string& mode) {
        const pid_t run = product_.StartRun(Policy(mode), {"python3", "-c", kFlood}, mode, {"--in", product_.Path("in")});
        const auto out = [&] { return ReadText(product_.Path(mode + ".out")); };
        EXPECT_TRUE(Until([&] { return out() == "up\n"; })) << ReadText(product_.Path(mode + ".err"));
        const pid_t agent = product_.AgentPid();
        EXPECT_GT(agent, 0);
        EXPECT_EQ(kill(agent, SIGSTOP), 0);
        (void)product_.Put("in/go", "");
        EXPECT_TRUE(Until([&] { return absl::StrContains(out(), "\nzones ") && absl::EndsWith(out(), "\n"); }, 120)) << out();
        zones_ = ZoneRecords();
        EXPECT_EQ(kill(agent, SIGCONT), 0);
        (void)product_.Put("in/end", "");
        const Ran ran = product_.Finish(run, mode);
        EXPECT_EQ(ran.status, 0) << ran.Text();
        for (const char* word : {"go", "end"}) std::filesystem::remove(product_.Path(absl::StrCat("in/", word)));
        std::map<std::string, Flood> floods;
        const std::string text = out();
        for (const absl::string_view line : absl::StrSplit(text, '\n')) {
            const std::vector<std::string> words = absl::StrSplit(line, ' ');
            if (words.size() != 4) continue;
            Flood& flood = floods[words[0]];
            EXPECT_TRUE(absl::SimpleAtoi(words[1], &flood.passed) && absl::SimpleAtoi(words[2], &flood.refused) &&
                        absl::SimpleAtoi(words[3], &flood.per_second));
            std::cout << mode << " " << line << "\n";
        }
        return floods;
    }
    // How many zones the kernel keeps a record of.
    size_t ZoneRecords() const {
        for (const auto& abi : std::filesystem::directory_iterator(product_.pin_dir())) {
            const Fd map(bpf_obj_get((abi.path() / "maps/dns_zones").c_str()));
            if (!map.ok()) continue;
            size_t count = 0;
            sk_dns_zone_key key{}, next{};
            for (bool more = bpf_map_get_next_key(map.get(), nullptr, &next) == 0; more; more = bpf_map_get_next_key(map.get(), &key, &next) == 0) {
                key = next;
                ++count;
            }
            return count;
        }
        ADD_FAILURE() << "no map of zones";
        return 0;
    }

    World world_;
    Product product_;
    size_t zones_ = 0;  // when the floods were over
};

TEST_F(DnsFloods, WhatLeavesIsWithinTheCreditAndSoIsWhatIsKept) {
    const std::map<std::string, Flood> floods = Run("open");
    const Flood zones = floods.at("zones"), names = floods.at("names");
    EXPECT_EQ(zones.passed + zones.refused, 100'000);
    EXPECT_EQ(names.passed + names.refused, 100'000);
    // Which of 100,000 zones: 16 bits each, out of 2 KiB. Names of 160 bits, out of 256 bytes.
    EXPECT_GE(zones.passed, 50);
    EXPECT_LE(zones.passed * 16, 2048 * 8);
    EXPECT_GE(names.passed, 3);
    EXPECT_LE(names.passed * 160, 256 * 8);
    EXPECT_GE(zones_, 50u);
    EXPECT_LE(zones_, size_t{SK_DNS_BUDGET_UNRANKED} + 2);
    std::set<std::string> learnt;
    for (const std::string& name : world_.TakeNames()) {
        if (absl::EndsWith(name, ".flood.test")) learnt.insert(name);
    }
    EXPECT_LE(learnt.size() * 20, 256u) << "at the name server, after the agent went on";
}

// The same under observe: nothing is refused, so what is refused above is refused for its credit.
TEST_F(DnsFloods, UnderObserveAllOfItLeaves) {
    const std::map<std::string, Flood> floods = Run("observe");
    EXPECT_EQ(floods.at("zones").passed, 100'000);
    EXPECT_EQ(floods.at("names").passed, 100'000);
    EXPECT_LE(zones_, size_t{SK_DNS_BUDGET_UNRANKED} + 2);
}

}  // namespace
}  // namespace stockade::tests
