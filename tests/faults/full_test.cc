// Tables that are full: one line that says what to do, 125, and nothing half done; with room again it works again.
#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/wire/kinds.h"
#include "bpf/wire/slot.h"
#include "tests/tools/product.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/kernel/pins.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(Product& product, const std::vector<std::string>& words) {
    const Ran ran = product.Run("networkless", {"/bin/sh", "-c", "echo ran"});
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_EQ(ran.out, "");
    for (const std::string& word : words) EXPECT_THAT(ran.err, HasSubstr(word));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(At(ran.result, "end"), "failed");
    EXPECT_EQ(At(ran.result, "exit_code"), "125");
}

void ExpectRuns(Product& product) {
    const Ran ran = product.Run("networkless", {"/bin/sh", "-c", "echo ran"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "ran\n");
}

// Of the agent's pins, as if sandboxes of other agents had filled it.
TEST(Full, TheMapOfCgroups) {
    Product product;
    ExpectRuns(product);
    ASSERT_TRUE(Until([&] { return product.LeftOver().empty(); })) << product.LeftOver();
    const Fd cgroups(
        bpf_obj_get(absl::StrCat(product.pin_dir(), "/abi", kernel::kPinAbi, "/maps/cgroups").c_str()));
    ASSERT_TRUE(cgroups.ok()) << strerror(errno);
    std::vector<uint64_t> filled;
    const uint32_t slot = 1;
    for (uint64_t id = ~uint64_t{0}; bpf_map_update_elem(cgroups.get(), &id, &slot, BPF_ANY) == 0; --id)
        filled.push_back(id);
    EXPECT_GT(filled.size(), 4000u);
    const pid_t agent = product.AgentPid();
    for (int i = 0; i < 2; ++i) {
        ExpectRefused(product, {"cgroups is full", "stockade doctor --clean"});
        EXPECT_TRUE(Until([&] { return product.LeftOver().empty(); })) << product.LeftOver();
    }
    for (const uint64_t id : filled) EXPECT_EQ(bpf_map_delete_elem(cgroups.get(), &id), 0);
    ExpectRuns(product);
    EXPECT_EQ(product.AgentPid(), agent) << "the agent went on all the while";
}

TEST(Full, UserIds) {
    Product product("uid_range: [1910000000, 2]\n");
    std::vector<pid_t> clients;
    for (int i = 0; i < 2; ++i) {
        const std::string tag = absl::StrCat("client", i);
        clients.push_back(
            product.StartRun("networkless", {"/bin/sh", "-c", "echo up; exec sleep 1000"}, tag));
        ASSERT_TRUE(Until([&] { return product.Get(tag + ".out") == "up\n"; })) << product.Get(tag + ".err");
    }
    ExpectRefused(product, {"user ids", "uid_range"});
    EXPECT_EQ(product.Sandboxes().size(), 2u);
    kill(clients[0], SIGTERM);
    EXPECT_EQ(Wait(clients[0]), 128 + SIGTERM);
    EXPECT_TRUE(Until([&] { return product.Sandboxes().size() == 1; }));
    ExpectRuns(product);
    kill(clients[1], SIGTERM);
    EXPECT_EQ(Wait(clients[1]), 128 + SIGTERM);
    EXPECT_TRUE(Until([&] { return product.LeftOver().empty(); })) << product.LeftOver();
}

// A condemnation whose record found a full ring: what the kernel keeps of the sandbox is looked at.
TEST(Full, ACondemnedSandboxEndsWithoutARecordOfIt) {
    Product product;
    const pid_t pid = product.StartRun("networkless", {"python3", "-c", "print('up', flush=True)\nwhile True: pass\n"}, "lost");
    ASSERT_TRUE(Until([&] { return product.Get("lost.out") == "up\n"; })) << product.Get("lost.err");
    const Fd states(bpf_obj_get(absl::StrCat(product.pin_dir(), "/abi", kernel::kPinAbi, "/maps/states").c_str()));
    ASSERT_TRUE(states.ok()) << strerror(errno);
    uint32_t slot = 0;
    sk_state state{};
    for (uint32_t i = 1; i < 64 && slot == 0; ++i) {
        ASSERT_EQ(bpf_map_lookup_elem(states.get(), &i, &state), 0);
        if (state.tasks > 0) slot = i;
    }
    ASSERT_NE(slot, 0u);
    state.condemned_ns = BootNow();
    state.condemned_code = SK_CODE_ESCAPE;
    ASSERT_EQ(bpf_map_update_elem(states.get(), &slot, &state, BPF_EXIST), 0);
    const Ran ran = product.Finish(pid, "lost");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "policy") << ran.Text();
}

}  // namespace
}  // namespace stockade::tests
