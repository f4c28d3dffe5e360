#include "userspace/sandbox/registry.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "userspace/sandbox/state_file.h"

namespace stockade::sandbox {
namespace {

using model::SandboxState;

std::shared_ptr<const model::SandboxInfo> Info(uint64_t ms = 1) {
    auto info = std::make_shared<model::SandboxInfo>();
    info->id = model::SandboxId::FromParts(ms, 1, 1);
    return info;
}

TEST(Registry, GivesEachSandboxAUidOfItsOwnAndReusesLate) {
    Registry registry({.first_uid = 100, .uid_count = 2, .max_sandboxes = 3});
    auto a = registry.Add(Info(1));
    auto b = registry.Add(Info(2));
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ((*a)->uid, 100u);
    EXPECT_EQ((*b)->uid, 101u);
    EXPECT_EQ(registry.Add(Info(3)).status().code(), absl::StatusCode::kResourceExhausted);
    registry.Remove((*b)->id());
    auto c = registry.Add(Info(3));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_EQ((*c)->uid, 101u);
    EXPECT_EQ(registry.Add(Info(3)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Registry, TheNodeHasALimit) {
    Registry registry({.first_uid = 100, .uid_count = 9, .max_sandboxes = 1});
    ASSERT_TRUE(registry.Add(Info(1)).ok());
    EXPECT_EQ(registry.Add(Info(2)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Registry, LookupKnowsTheGeneration) {
    Registry registry({});
    auto sandbox = registry.Add(Info());
    ASSERT_TRUE(sandbox.ok());
    registry.Bind(**sandbox, 7, 3);
    EXPECT_NE(registry.Lookup(7, 3), nullptr);
    EXPECT_NE(registry.Lookup(7, 3 | SK_LABEL_ENTERED), nullptr);
    EXPECT_EQ(registry.Lookup(7, 2), nullptr);
    EXPECT_EQ(registry.FindSlot(7, 3), *sandbox);
    registry.Remove((*sandbox)->id());
    EXPECT_EQ(registry.Lookup(7, 3), nullptr);
    EXPECT_EQ(registry.FindSlot(7, 3), nullptr);
}

TEST(Registry, StatesGoForwardOnly) {
    Registry registry({});
    Sandbox& sandbox = **registry.Add(Info());
    EXPECT_FALSE(registry.Move(sandbox, SandboxState::kRunning).ok());
    EXPECT_TRUE(registry.Move(sandbox, SandboxState::kStarting).ok());
    EXPECT_TRUE(registry.Move(sandbox, SandboxState::kRunning).ok());
    EXPECT_TRUE(registry.Move(sandbox, SandboxState::kCondemned).ok());
    EXPECT_FALSE(registry.Move(sandbox, SandboxState::kRunning).ok());
    EXPECT_FALSE(registry.Move(sandbox, SandboxState::kDestroyed).ok());
    EXPECT_TRUE(registry.Move(sandbox, SandboxState::kEmpty).ok());
    EXPECT_TRUE(registry.Move(sandbox, SandboxState::kDestroyed).ok());
}

TEST(Registry, FindsByUniquePrefix) {
    Registry registry({});
    Sandbox* a = *registry.Add(Info(1));
    ASSERT_TRUE(registry.Add(Info(uint64_t{1} << 40)).ok());
    EXPECT_EQ(*registry.FindByPrefix(a->id()), a);
    EXPECT_EQ(*registry.FindByPrefix(a->id().substr(4, 10)), a);
    for (const char* all : {"sbx", "sbx_"})
        EXPECT_EQ(registry.FindByPrefix(all).status().code(), absl::StatusCode::kInvalidArgument) << all;
    EXPECT_EQ(registry.FindByPrefix("sbx_0").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(registry.FindByPrefix("sbx_ZZZ").status().code(), absl::StatusCode::kNotFound);
}

class Files : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_state_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    std::string dir_;
};

TEST_F(Files, AreReadBackAndBrokenOnesToldApart) {
    auto files = StateFiles::Create(dir_ + "/sandboxes");
    ASSERT_TRUE(files.ok()) << files.status();
    StoredSandbox stored;
    stored.set_id(model::SandboxId::FromParts(5, 6, 7).str());
    stored.set_slot(9);
    ASSERT_TRUE(files->Write(stored).ok());
    stored.set_slot(10);
    ASSERT_TRUE(files->Write(stored).ok());
    std::ofstream(dir_ + "/sandboxes/sbx_junk.pb") << "\xff\xff";
    auto loaded = files->Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(loaded->sandboxes.size(), 1u);
    EXPECT_EQ(loaded->sandboxes[0].slot(), 10u);
    EXPECT_EQ(loaded->broken, std::vector<std::string>{"sbx_junk.pb"});
    ASSERT_TRUE(files->Remove(stored.id()).ok());
    EXPECT_TRUE(files->Remove(stored.id()).ok());
    EXPECT_TRUE(files->Load()->sandboxes.empty());
}

TEST_F(Files, AnIdIsNoPath) {
    auto files = StateFiles::Create(dir_);
    StoredSandbox stored;
    stored.set_id("../../etc/x");
    EXPECT_FALSE(files->Write(stored).ok());
    EXPECT_FALSE(files->Remove("../x").ok());
}

}  // namespace
}  // namespace stockade::sandbox
