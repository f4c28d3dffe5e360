// The matcher inside the kernel, on real dentries, against the slow obvious one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/live/kernel_matcher.h"
#include "tests/live/tree.h"
#include "userspace/policy/testing_matcher.h"
#include "userspace/policy/testing_pairs.h"

namespace stockade::live {
namespace {

using policy::PathRule;

PathRule Allow(const std::string& pattern, uint32_t ops = SK_OP_READ) {
    PathRule rule;
    rule.pattern = pattern;
    rule.allow = ops;
    return rule;
}

PathRule Deny(const std::string& pattern, uint32_t ops = SK_OP_READ) {
    PathRule rule;
    rule.pattern = pattern;
    rule.deny = ops;
    return rule;
}

class MatcherTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        auto matcher = KernelMatcher::Create(policy::TestKeys());
        ASSERT_TRUE(matcher.ok()) << matcher.status();
        matcher_ = matcher->release();
    }
    static void TearDownTestSuite() {
        delete matcher_;
        matcher_ = nullptr;
    }
    void SetUp() override {
        ASSERT_NE(matcher_, nullptr);
        auto tree = Tree::Create("sk_matcher");
        ASSERT_TRUE(tree.ok()) << tree.status();
        tree_.emplace(*std::move(tree));
    }
    void TearDown() override {
        for (uint32_t index : published_) EXPECT_TRUE(matcher_->Retire(index).ok());
    }
    uint32_t Publish(const std::vector<PathRule>& rules) {
        auto compiled = policy::Compile(policy::PolicyOf(rules), policy::TestKeys());
        EXPECT_TRUE(compiled.ok()) << compiled.status();
        auto index = matcher_->Publish(*compiled);
        EXPECT_TRUE(index.ok()) << index.status();
        published_.push_back(*index);
        return *index;
    }
    sk_selftest_call Ask(int fd, uint32_t index) { return AskUnder(fd, tree_->root(), index); }
    sk_selftest_call AskUnder(int fd, int root, uint32_t index) {
        auto answer = matcher_->Ask(fd, root, index);
        EXPECT_TRUE(answer.ok()) << answer.status();
        return answer.ok() ? *answer : sk_selftest_call{};
    }
    bool Reads(int fd, uint32_t index) {
        sk_selftest_call answer = Ask(fd, index);
        return answer.rc == 0 && (answer.bits & SK_OP_READ) && !((answer.bits >> SK_DENY_SHIFT) & SK_OP_READ);
    }

    static KernelMatcher* matcher_;  // owned by the suite
    std::optional<Tree> tree_;
    std::vector<uint32_t> published_;
};
KernelMatcher* MatcherTest::matcher_ = nullptr;

constexpr int kErrDeep = -2, kErrUnreachable = -3;

std::string Describe(const std::vector<PathRule>& rules) {
    return absl::StrJoin(rules, "\n", [](std::string* out, const PathRule& r) {
        absl::StrAppend(out, r.pattern, " allow ", r.allow, " deny ", r.deny);
    });
}

// "." and ".." are not names: the kernel has walked them away.
bool HasDots(const std::string& path) {
    const std::string closed = path + "/";
    return closed.find("/./") != std::string::npos || closed.find("/../") != std::string::npos;
}

TEST_F(MatcherTest, AgreesWithTheSlowMatcherOnRandomPairs) {
    // A guest is an emulated CPU: there the pairs show that this kernel loads and walks right; their number is the host's.
    const int want_pairs = getenv("STOCKADE_IN_GUEST") ? 6000 : 110000;
    const int paths = getenv("STOCKADE_IN_GUEST") ? 200 : 1000;
    policy::PairGenerator random(want_pairs);
    int pairs = 0, nonzero = 0, mismatches = 0;
    while (pairs < want_pairs) {
        std::vector<PathRule> rules = random.Rules(1 + random.Below(24));
        auto compiled = policy::Compile(policy::PolicyOf(rules), policy::TestKeys());
        if (!compiled.ok()) continue;
        auto index = matcher_->Publish(*compiled);
        ASSERT_TRUE(index.ok()) << index.status();
        for (int i = 0; i < paths; i++) {
            std::string path = random.Path(rules);
            if (HasDots(path)) continue;
            auto fd = tree_->MakeDir(path);
            ASSERT_TRUE(fd.ok()) << fd.status();
            uint32_t want = policy::SlowVerdict(rules, 1, path);
            pairs++;
            sk_selftest_call got = Ask(fd->get(), *index);
            nonzero += want != 0;
            if (got.rc == 0 && got.bits == want) continue;
            mismatches++;
            ADD_FAILURE() << path << " rc " << got.rc << " bits " << got.bits << " want " << want << "\n" << Describe(rules);
            if (mismatches > 5) return;
        }
        ASSERT_TRUE(matcher_->Retire(*index).ok());
        ASSERT_TRUE(tree_->Clear().ok());
    }
    EXPECT_GT(nonzero, pairs / 4);
    EXPECT_LT(nonzero, pairs);
    RecordProperty("pairs", pairs);
    std::cout << pairs << " pairs, " << nonzero << " of them listed, " << mismatches << " mismatches; "
              << matcher_->verified_instructions() << " instructions verified\n";
}

TEST_F(MatcherTest, NamesOfEveryLength) {
    // Lengths around the 8-byte words of the hash and the inline names (32 bytes, 40 since 6.13) are where it can go wrong.
    std::vector<PathRule> rules;
    for (int length = 1; length <= 255; length++) rules.push_back(Allow(absl::StrCat("/", std::string(length, 'n'), "/end")));
    uint32_t index = Publish(rules);
    for (int length = 1; length <= 255; length++) {
        auto right = tree_->MakeDir(absl::StrCat("/", std::string(length, 'n'), "/end"));
        auto wrong = tree_->MakeDir(absl::StrCat("/", std::string(length - 1, 'n'), "x/end"));
        ASSERT_TRUE(right.ok() && wrong.ok());
        EXPECT_TRUE(Reads(right->get(), index)) << length;
        EXPECT_FALSE(Reads(wrong->get(), index)) << length;
    }
}

TEST_F(MatcherTest, GlobsOverLongNames) {
    uint32_t index = Publish({Allow("/s*e/x"), Allow("**/*.long"), Deny("/d/*y*")});
    for (int length : {1, 6, 7, 8, 14, 15, 16, 22, 23, 24, 30, 31, 32, 38, 39, 40, 41, 100, 247, 248, 249, 250}) {
        std::string middle(length, 'm');
        auto star = tree_->MakeDir(absl::StrCat("/s", middle, "e/x"));
        auto tail = tree_->MakeDir(absl::StrCat("/any/", middle, ".long"));
        auto miss = tree_->MakeDir(absl::StrCat("/any/", middle, ".lon"));
        ASSERT_TRUE(star.ok() && tail.ok() && miss.ok());
        EXPECT_TRUE(Reads(star->get(), index)) << length;
        EXPECT_TRUE(Reads(tail->get(), index)) << length;
        EXPECT_FALSE(Reads(miss->get(), index)) << length;
    }
}

TEST_F(MatcherTest, TooDeepIsNotTold) {
    uint32_t index = Publish({Allow("/**")});
    std::string path;
    for (int depth = 1; depth <= SK_PATH_SLOTS + 3; depth++) {
        path += "/d";
        auto fd = tree_->MakeDir(path);
        ASSERT_TRUE(fd.ok()) << fd.status();
        // The last step is spent on seeing the root. User space says the same (Evaluate.DeeperThan...).
        if (depth < SK_PATH_SLOTS) {
            EXPECT_TRUE(Reads(fd->get(), index)) << depth;
        } else {
            EXPECT_EQ(Ask(fd->get(), index).rc, kErrDeep) << depth;
        }
    }
}

TEST_F(MatcherTest, BindMountIsJudgedByTheNameItIsReachedBy) {
    uint32_t index = Publish({Allow("/open/**"), Deny("/secret/**")});
    auto file = tree_->MakeFile("/secret/file");
    auto place = tree_->MakeDir("/open/place");
    ASSERT_TRUE(file.ok() && place.ok());
    ASSERT_EQ(mount(tree_->At("/secret").c_str(), tree_->At("/open/place").c_str(), nullptr, MS_BIND, nullptr), 0);
    auto alias = tree_->Open("/open/place/file", O_RDONLY);
    ASSERT_TRUE(alias.ok()) << alias.status();
    EXPECT_TRUE(Reads(alias->get(), index));
    EXPECT_FALSE(Reads(file->get(), index));
    EXPECT_EQ(Ask(alias->get(), index).slots, 4u) << "three names and a crossing";
}

TEST_F(MatcherTest, MountOnTheLeafAndMountOnMount) {
    uint32_t index = Publish({Allow("/a/b")});
    ASSERT_TRUE(tree_->MakeDir("/a/b").ok());
    ASSERT_EQ(mount("tmpfs", tree_->At("/a/b").c_str(), "tmpfs", 0, nullptr), 0);
    ASSERT_EQ(mount("tmpfs", tree_->At("/a/b").c_str(), "tmpfs", 0, nullptr), 0);
    auto fd = tree_->Open("/a/b", O_PATH);
    ASSERT_TRUE(fd.ok());
    EXPECT_TRUE(Reads(fd->get(), index));
    EXPECT_EQ(Ask(fd->get(), index).slots, 4u);
    // The leaf's name stands above the crossings: rules that look at the last name alone find it there.
    EXPECT_FALSE(Reads(fd->get(), Publish({Allow("/**"), Deny("**/b")})));
    EXPECT_FALSE(Reads(fd->get(), Publish({Allow("/**"), Deny("**/b*")})));
    EXPECT_TRUE(Reads(fd->get(), Publish({Allow("/**"), Deny("**/a")}))) << "a directory above is not the leaf";
}

TEST_F(MatcherTest, OverlayFileIsJudgedByTheViewAbove) {
    for (const char* dir : {"/lower/x", "/upper", "/work", "/root"}) ASSERT_TRUE(tree_->MakeDir(dir).ok());
    ASSERT_TRUE(tree_->MakeFile("/lower/x/file").ok());
    std::string options = absl::StrCat("lowerdir=", tree_->At("/lower"), ",upperdir=", tree_->At("/upper"), ",workdir=", tree_->At("/work"));
    if (mount("overlay", tree_->At("/root").c_str(), "overlay", 0, options.c_str()) != 0) GTEST_SKIP() << "no overlayfs: " << strerror(errno);
    uint32_t index = Publish({Allow("/root/x/file"), Deny("/lower/**")});
    auto file = tree_->Open("/root/x/file", O_RDONLY);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(Reads(file->get(), index));
    auto inside = Fd::Open(tree_->At("/root"), O_PATH);
    uint32_t rooted = Publish({Allow("/x/file")});
    sk_selftest_call answer = AskUnder(file->get(), inside->get(), rooted);
    EXPECT_EQ(answer.rc, 0);
    EXPECT_EQ(answer.bits, static_cast<uint32_t>(SK_OP_READ));
}

TEST_F(MatcherTest, MemoryFileIsUnreachable) {
    uint32_t index = Publish({Allow("/**"), Allow("**/m")});
    Fd fd(memfd_create("m", MFD_CLOEXEC));
    ASSERT_TRUE(fd.ok());
    EXPECT_EQ(Ask(fd.get(), index).rc, kErrUnreachable);
    int pipes[2];
    ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
    EXPECT_EQ(Ask(pipes[0], index).rc, kErrUnreachable);
    close(pipes[0]);
    close(pipes[1]);
}

TEST_F(MatcherTest, DetachedMountIsUnreachable) {
    uint32_t index = Publish({Allow("/**")});
    ASSERT_TRUE(tree_->MakeDir("/m").ok());
    ASSERT_EQ(mount("tmpfs", tree_->At("/m").c_str(), "tmpfs", 0, nullptr), 0);
    auto file = tree_->MakeFile("/m/file");
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(Reads(file->get(), index));
    ASSERT_EQ(umount2(tree_->At("/m").c_str(), MNT_DETACH), 0);
    EXPECT_EQ(Ask(file->get(), index).rc, kErrUnreachable);
}

TEST_F(MatcherTest, PathsStartAtTheSandboxRootAndNotAtTheCallers) {
    uint32_t index = Publish({Allow("/jail/file"), Deny("/file")});
    auto file = tree_->MakeFile("/jail/file");
    ASSERT_TRUE(file.ok());
    pid_t pid = fork();
    if (pid == 0) {
        if (chroot(tree_->At("/jail").c_str()) != 0) _exit(2);
        int fd = open("/file", O_RDONLY);
        auto under_tree = matcher_->Ask(fd, tree_->root(), index);
        auto under_own = matcher_->Ask(fd, -1, index);
        if (!under_tree.ok() || !under_own.ok()) _exit(3);
        if (under_tree->rc != 0 || under_tree->bits != SK_OP_READ) _exit(4);
        _exit(under_own->bits == (SK_OP_READ << SK_DENY_SHIFT) ? 0 : 5);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "exit " << WEXITSTATUS(status);
}

TEST_F(MatcherTest, FileAboveTheRootIsUnreachable) {
    uint32_t index = Publish({Allow("/**"), Allow("**/outside")});
    ASSERT_TRUE(tree_->MakeDir("/jail").ok());
    auto outside = tree_->MakeFile("/outside");
    auto jail = tree_->Open("/jail", O_PATH);
    EXPECT_LT(AskUnder(outside->get(), jail->get(), index).rc, 0);
}

TEST_F(MatcherTest, DeletedFileKeepsItsName) {
    uint32_t index = Publish({Allow("/dir/file")});
    auto file = tree_->MakeFile("/dir/file");
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(unlink(tree_->At("/dir/file").c_str()), 0);
    EXPECT_TRUE(Reads(file->get(), index)) << "reads and writes stay with the name; exec asks the link count";
}

TEST_F(MatcherTest, HardLinkIsJudgedByTheNameItWasOpenedBy) {
    uint32_t index = Publish({Allow("/a/**"), Deny("/b/**")});
    ASSERT_TRUE(tree_->MakeFile("/a/file").ok());
    ASSERT_TRUE(tree_->MakeDir("/b").ok());
    ASSERT_EQ(link(tree_->At("/a/file").c_str(), tree_->At("/b/file").c_str()), 0);
    auto a = tree_->Open("/a/file", O_RDONLY), b = tree_->Open("/b/file", O_RDONLY);
    EXPECT_TRUE(Reads(a->get(), index));
    EXPECT_FALSE(Reads(b->get(), index));
}

}  // namespace
}  // namespace stockade::live
