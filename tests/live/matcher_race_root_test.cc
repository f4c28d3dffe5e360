// Directories are renamed on another CPU while the paths below them are judged: a path of which a part is old and a part new must
// never be allowed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/live/kernel_matcher.h"
#include "tests/live/tree.h"
#include "userspace/policy/testing_pairs.h"

namespace stockade::live {
namespace {

constexpr int kErrRace = -1;

struct Race {
    std::atomic<bool> stop{false};
    std::atomic<long> renames{0};
};

// One rename changes the name and the parent at once; another moves all of it below a third directory.
void Rename(const Tree& tree, Race& race) {
    while (!race.stop) {
        renameat2(tree.root(), "p/q", tree.root(), "r/s", 0);
        renameat2(tree.root(), "r", tree.root(), "deep/t", 0);
        renameat2(tree.root(), "deep/t", tree.root(), "r", 0);
        renameat2(tree.root(), "r/s", tree.root(), "p/q", 0);
        race.renames += 4;
    }
}

TEST(MatcherRace, MixedPathIsNeverAllowed) {
    auto matcher = KernelMatcher::Create(policy::TestKeys());
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    auto tree = Tree::Create("sk_race");
    ASSERT_TRUE(tree.ok()) << tree.status();
    auto file = tree->MakeFile("/p/q/a/b/file");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(tree->MakeDir("/r").ok() && tree->MakeDir("/deep").ok());
    // /p/q, /r/s and /deep/t/s occur. Only what never does is allowed.
    std::vector<policy::PathRule> rules;
    for (const char* pattern : {"/p/s/**", "/r/q/**", "/deep/r/**", "/t/**", "/deep/t/q/**"}) {
        rules.emplace_back().pattern = pattern;
        rules.back().allow = SK_OP_READ;
    }
    auto compiled = policy::Compile(policy::PolicyOf(rules), policy::TestKeys());
    ASSERT_TRUE(compiled.ok());
    auto index = (*matcher)->Publish(*compiled);
    ASSERT_TRUE(index.ok());
    Race race;
    std::thread renamer([&] { Rename(*tree, race); });
    const long wanted = getenv("STOCKADE_IN_GUEST") ? 20000 : 1000000;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    long asked = 0, mixed = 0, raced = 0, failed = 0;
    for (; asked < wanted && std::chrono::steady_clock::now() < deadline; asked++) {
        auto answer = (*matcher)->Ask(file->get(), tree->root(), *index, 1);
        if (!answer.ok()) failed++;
        if (answer.ok() && answer->rc == kErrRace) raced++;
        if (answer.ok() && answer->rc == 0 && answer->bits != 0) mixed++;
    }
    race.stop = true;
    renamer.join();
    EXPECT_EQ(mixed, 0);
    EXPECT_EQ(failed, 0);
    EXPECT_GT(race.renames.load(), 100);
    std::cout << asked << " verdicts, " << race.renames.load() << " renames, " << raced << " gave up after their retries\n";
}

}  // namespace
}  // namespace stockade::live
