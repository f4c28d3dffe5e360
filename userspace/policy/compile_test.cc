#include "userspace/policy/compile.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/policy/evaluate.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"
#include "userspace/policy/testing_matcher.h"
#include "userspace/policy/testing_pairs.h"

namespace stockade::policy {
namespace {

using testing::HasSubstr;

PathRule Rule(const std::string& pattern, uint32_t allow, uint32_t deny = 0) {
    PathRule rule;
    rule.pattern = pattern;
    rule.allow = allow;
    rule.deny = deny;
    rule.list = "files.read";
    rule.at = {"t.yaml", 1, 1};
    return rule;
}

ResolvedPolicy Parsed(const std::string& spec) {
    ParseResult parsed = ParseFiles(
        {{"t.yaml",
          absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec: ", spec,
                       "\n")}});
    EXPECT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics.at(0));
    PolicyLibrary library;
    std::vector<Diagnostic> diagnostics;
    library.Add(std::move(parsed.policies), diagnostics);
    return *library.Resolve("t");
}

struct Built {
    sk_hash_keys keys = TestKeys(3);
    CompiledPolicy compiled;
    PolicyView view() const { return {compiled.cells, &keys}; }
    bool Allows(const std::string& path, uint32_t op) const { return EvaluatePath(view(), path).Allows(op); }
};

Built Build(const ResolvedPolicy& policy, int root_fd = -1) {
    Built built;
    StatusOr<CompiledPolicy> compiled = Compile(policy, built.keys, {root_fd});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (compiled.ok()) built.compiled = *std::move(compiled);
    return built;
}

TEST(Compile, HeadAndLayoutAreWhatTheWireSays) {
    const Built b =
        Build(Parsed("{mode: observe, violation: kill-sandbox, exec: {violation: deny}, network: {uids: {}}, "
                     "grants: [mount], entered: enforce, record: {files: first}}"));
    const sk_policy_head& head = b.view().head();
    EXPECT_EQ(head.magic, SK_POLICY_MAGIC);
    EXPECT_EQ(head.abi, uint32_t{SK_POLICY_ABI});
    EXPECT_EQ(head.id, b.compiled.id);
    EXPECT_EQ(head.grants, uint64_t{1} << SK_GRANT_MOUNT);
    EXPECT_EQ(head.flags & (SK_POLICY_HAS_EXEC | SK_POLICY_HAS_FILES | SK_POLICY_HAS_NETWORK),
              SK_POLICY_HAS_EXEC | SK_POLICY_HAS_NETWORK);
    EXPECT_EQ(head.mode, SK_MODE_OBSERVE);
    EXPECT_EQ(head.entered, SK_VERDICT_ALLOW);
    EXPECT_EQ(head.violation[SK_SECTION_EXEC], SK_VERDICT_DENY);
    EXPECT_EQ(head.violation[SK_SECTION_ESCAPE], SK_VERDICT_KILL_SANDBOX);
    EXPECT_EQ(head.record[SK_SECTION_FILES], SK_RECORD_FIRST);
    EXPECT_EQ((head.edge_mask + 1) & head.edge_mask, 0u);
    EXPECT_GE(head.edge_mask, 3u);
    EXPECT_EQ(head.glob_cell, head.edge_cell + (head.edge_mask + 1) / 4);
    EXPECT_EQ(b.compiled.cells.size(), head.glob_cell + head.glob_rows);
    EXPECT_EQ(b.compiled.hash_hex.size(), 64u);
    EXPECT_EQ(b.compiled.hash_hex.substr(0, 4), absl::StrCat(absl::Hex(head.id >> 48, absl::kZeroPad4)))
        << "no links, so the id is the hash's start";
}

TEST(Compile, EveryEntryIsFoundUnderItsOwnBucketOnly) {
    const Built b =
        Build(Parsed("{files: {read: [/a/**, /b/*.c, \"**/x*\"]}, network: {allow: [{cidr: 10.0.0.0/8, "
                     "ports: [1-500]}]}}"));
    const sk_policy_head& head = b.view().head();
    size_t entries = 0;
    for (uint32_t bucket = 0; bucket <= head.edge_mask; ++bucket) {
        for (const sk_entry& entry : b.compiled.cells[head.edge_cell + bucket / 4].bucket[bucket % 4]) {
            if (entry.key == 0) continue;
            ++entries;
            EXPECT_EQ(sk_bucket(entry.key) & head.edge_mask, bucket);
            EXPECT_NE(entry.meta & SK_META_VALID, 0u);
        }
    }
    EXPECT_EQ(entries, b.compiled.stats.entries);
    EXPECT_GT(entries, 500u);
}

TEST(Compile, KeysHideTheTableAndDoNotChangeVerdictsOrIds) {
    const ResolvedPolicy policy = Parsed("{files: {read: [/a/**]}}");
    const sk_hash_keys one = TestKeys(1), two = TestKeys(2);
    const StatusOr<CompiledPolicy> a = Compile(policy, one), b = Compile(policy, two);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->id, b->id);
    EXPECT_NE(0, std::memcmp(&a->cells[2], &b->cells[2], sizeof(sk_cell)));
    EXPECT_TRUE(EvaluatePath({a->cells, &one}, "/a/x").Allows(SK_OP_READ));
    EXPECT_FALSE(EvaluatePath({a->cells, &two}, "/a/x").Allows(SK_OP_READ));
}

TEST(Compile, OperationsOfTheLists) {
    const Built b =
        Build(Parsed("{extends: [], exec: {allow: [/p], libraries: [/l], deny: [/d]}, files: {read: [/r, "
                     "/d], write: [/w], deny: [/x]}, network: {allow: [{unix: /s}, {unix: /x}]}}"));
    EXPECT_TRUE(b.Allows("/p", SK_OP_EXEC) && b.Allows("/p", SK_OP_MAP));
    EXPECT_FALSE(b.Allows("/p", SK_OP_READ));
    EXPECT_TRUE(b.Allows("/l", SK_OP_MAP));
    EXPECT_FALSE(b.Allows("/l", SK_OP_EXEC));
    EXPECT_TRUE(b.Allows("/r", SK_OP_READ));
    EXPECT_FALSE(b.Allows("/r", SK_OP_WRITE));
    EXPECT_TRUE(b.Allows("/w", SK_OP_WRITE) && b.Allows("/w", SK_OP_READ));
    EXPECT_TRUE(b.Allows("/d", SK_OP_READ)) << "exec.deny is about code";
    EXPECT_TRUE(b.Allows("/s", SK_OP_UNIX));
    EXPECT_FALSE(b.Allows("/x", SK_OP_UNIX)) << "files.deny covers sockets";
    EXPECT_TRUE(EvaluateUnixName(b.view(), false, "/s"));
    EXPECT_FALSE(EvaluateUnixName(b.view(), true, "/s"));
}

TEST(Compile, DenyBelowIsSetWhereARenameWouldMoveADeny) {
    const Built b = Build(PolicyOf({Rule("/**", SK_OP_WRITE), Rule("/a/b/secret", 0, SK_OP_WRITE),
                                    Rule("**/.ssh/**", 0, SK_OP_READ), Rule("**/x/y", 0, SK_OP_WRITE)}));
    const auto below = [&](const char* path) { return EvaluatePath(b.view(), path).deny_below; };
    EXPECT_TRUE(below("/a"));
    EXPECT_TRUE(below("/a/b"));
    EXPECT_FALSE(below("/a/c"));
    EXPECT_FALSE(below("/c"));
    EXPECT_TRUE(below("/c/x")) << "renaming x frees x/y";
    EXPECT_FALSE(below("/c/z"));
}

TEST(Compile, WholeAddressSpaces) {
    const Built b =
        Build(Parsed("{network: {allow: [{cidr: 0.0.0.0/0, ports: [443]}, {cidr: \"::/0\", ports: [80]}, "
                     "{cidr: \"2001:db8::/33\"}]}}"));
    EXPECT_TRUE(EvaluateConnect(b.view(), 0, {4, 0, 0xc0000201, 443}));
    EXPECT_FALSE(EvaluateConnect(b.view(), 0, {4, 0, 0xc0000201, 80}));
    EXPECT_TRUE(EvaluateConnect(b.view(), 0, {6, 1, 2, 80}));
    EXPECT_FALSE(EvaluateConnect(b.view(), 0, {6, 1, 2, 443}));
    EXPECT_TRUE(EvaluateConnect(b.view(), 0, {6, 0x20010db800000000, 2, 443}));
    EXPECT_FALSE(EvaluateConnect(b.view(), 0, {6, 0x20010db880000000, 2, 443}));
}

TEST(Compile, ListedUidsHaveTheirOwnRulesOnly) {
    const Built b =
        Build(Parsed("{network: {allow: [{cidr: 10.0.0.0/8}], uids: {7: [{cidr: 192.0.2.0/24}]}, loopback: "
                     "[80], host: [90], bind: [22]}}"));
    EXPECT_TRUE(EvaluateConnect(b.view(), 0, {4, 0, 0x0a000001, 1}));
    EXPECT_FALSE(EvaluateConnect(b.view(), 7, {4, 0, 0x0a000001, 1}));
    EXPECT_TRUE(EvaluateConnect(b.view(), 7, {4, 0, 0xc0000201, 1}));
    EXPECT_FALSE(EvaluateConnect(b.view(), 0, {4, 0, 0xc0000201, 1}));
    for (uint32_t uid : {0u, 7u}) {
        EXPECT_TRUE(EvaluateConnect(b.view(), uid, {4, 0, 0x7f000001, 80}));
        EXPECT_TRUE(EvaluateConnect(b.view(), uid, {6, 0, 1, 90}));
        EXPECT_FALSE(EvaluateConnect(b.view(), uid, {4, 0, 0x7f000001, 81}));
    }
    EXPECT_TRUE(EvaluateBind(b.view(), {4, 0, 0, 22}));
    EXPECT_FALSE(EvaluateBind(b.view(), {4, 0, 0, 80}));
    EXPECT_TRUE(EvaluateBind(b.view(), {4, 0, 0x7f000001, 80}));
    EXPECT_FALSE(EvaluateBind(b.view(), {4, 0, 0x7f000001, 90})) << "a host port is only connected to";
}

TEST(Compile, BoundsAreAnswers) {
    const sk_hash_keys keys = TestKeys();
    EXPECT_THAT(std::string(Compile(Parsed("{network: {allow: [{cidr: 10.0.0.0/8, ports: [1-5000]}]}}"), keys)
                                .status()
                                .message()),
                HasSubstr("more than 4096"));
    std::string prefixes;
    for (int bits = 0; bits < 25; ++bits)
        absl::StrAppend(&prefixes, bits ? ", " : "", "{cidr: 0.0.0.0/", bits, "}");
    EXPECT_THAT(
        std::string(
            Compile(Parsed(absl::StrCat("{network: {allow: [", prefixes, "]}}")), keys).status().message()),
        HasSubstr("more than 24 different prefix lengths"));
}

TEST(Compile, PatternsThatMultiplyAreRefusedByName) {
    std::vector<PathRule> rules = {Rule("/fine/file", SK_OP_READ)};
    for (int i = 0; i < 20; ++i) {
        rules.push_back(Rule(absl::StrCat("/**/a", i, "/*/b/*/*"), SK_OP_READ));
        rules.back().at.line = i + 2;
        rules.push_back(Rule(absl::StrCat("/**/*", i, "*/**/c", i, "/*"), SK_OP_READ));
    }
    const auto start = std::chrono::steady_clock::now();
    const Status status = Compile(PolicyOf(rules), TestKeys()).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/**/"));
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("/fine/file")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Compile, AThousandPatternsTakeLessThanASecond) {
    PairGenerator random(4);
    std::vector<PathRule> rules;
    for (int i = 0; i < 1000; ++i) {
        const char* const forms[] = {"/usr/lib/p%/**", "/etc/d%/conf", "/opt/t%/*.so",
                                     "**/name%",       "**/*.x%",      "/srv/*/f%"};
        std::string pattern = forms[i % 6];
        pattern.replace(pattern.find('%'), 1, absl::StrCat(i));
        rules.push_back(Rule(pattern, 1 + random.Below(15)));
    }
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    const Built b = Build(PolicyOf(rules));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e9;
    RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
    RecordProperty("cells", static_cast<int>(b.compiled.cells.size()));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(seconds, 1.0);
#endif
    for (int i = 0; i < 1000; i += 7) {
        const std::string path = absl::StrCat("/srv/z/f", i);
        EXPECT_EQ(EvaluatePath(b.view(), path).bits, SlowVerdict(rules, 1, path)) << path;
    }
}

class LinksTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "sk-links-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        dir_ = name;
        std::filesystem::create_directories(dir_ / "usr/bin");
        std::filesystem::create_directory_symlink("usr/bin", dir_ / "bin");
        std::filesystem::create_symlink("dash", dir_ / "usr/bin/sh");
        std::filesystem::create_symlink("/usr/bin/dash", dir_ / "abs");
        std::filesystem::create_symlink("../../../../../../etc/up", dir_ / "up");
        std::filesystem::create_symlink("loop", dir_ / "loop");
        ASSERT_TRUE(WriteFile("usr/bin/dash"));
        StatusOr<Fd> root = Fd::Open(dir_.string(), O_PATH | O_DIRECTORY);
        ASSERT_TRUE(root.ok()) << root.status();
        root_ = *std::move(root);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    bool WriteFile(const std::string& name) const {
        return Fd::Open((dir_ / name).string(), O_CREAT | O_WRONLY, 0644).ok();
    }

    std::filesystem::path dir_;
    Fd root_;
};

TEST_F(LinksTest, LiteralsAndLiteralStartsCoverTheirTargets) {
    const Built b =
        Build(PolicyOf({Rule("/bin/sh", SK_OP_EXEC), Rule("/bin/**", SK_OP_READ), Rule("/abs", SK_OP_MAP)}),
              root_.get());
    EXPECT_TRUE(b.Allows("/usr/bin/dash", SK_OP_EXEC));
    EXPECT_TRUE(b.Allows("/bin/sh", SK_OP_EXEC));
    EXPECT_FALSE(b.Allows("/usr/bin/bash", SK_OP_EXEC));
    EXPECT_TRUE(b.Allows("/usr/bin/other", SK_OP_READ));
    EXPECT_TRUE(b.Allows("/usr/bin/dash", SK_OP_MAP));
    ASSERT_EQ(b.compiled.resolutions.size(), 3u);
    EXPECT_EQ(b.compiled.resolutions[1].target, "/usr/bin/**");
    EXPECT_NE(
        b.compiled.id,
        Build(PolicyOf({Rule("/bin/sh", SK_OP_EXEC), Rule("/bin/**", SK_OP_READ), Rule("/abs", SK_OP_MAP)}))
            .compiled.id)
        << "other targets, other verdicts, so another id";
}

TEST_F(LinksTest, ACompilerMakesAnewWhatSaysOrReachesSomethingElse) {
    const ResolvedPolicy policy = PolicyOf({Rule("/bin/sh", SK_OP_EXEC), Rule("/proc/self/maps", SK_OP_READ)});
    Compiler compiler(TestKeys());
    const auto first = compiler.Compile(policy, {.root_fd = root_.get()});
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(compiler.Compile(policy).ok());
    EXPECT_EQ(*compiler.Compile(policy, {.root_fd = root_.get()}), *first) << "the same object";
    EXPECT_NE(*compiler.Compile(policy), *first) << "no root, no target";
    const auto other = compiler.Compile(PolicyOf({Rule("/bin/sh", SK_OP_READ)}), {.root_fd = root_.get()});
    EXPECT_NE((*other)->id, (*first)->id);

    std::filesystem::remove(dir_ / "usr/bin/sh");
    std::filesystem::create_symlink("bash", dir_ / "usr/bin/sh");
    const auto moved = compiler.Compile(policy, {.root_fd = root_.get()});
    ASSERT_TRUE(moved.ok());
    EXPECT_EQ((*moved)->resolutions.at(0).target, "/usr/bin/bash");
    EXPECT_EQ((*moved)->id, Compile(policy, TestKeys(), {.root_fd = root_.get()})->id);
    EXPECT_NE((*moved)->id, (*first)->id);
}

// Whoever makes a root must not be able to have its table taken for another's.
TEST_F(LinksTest, ALinkToALineOfItsOwnIsAnotherRoot) {
    const auto make = [&](const char* root, const char* a, const char* b) {
        std::filesystem::create_directory(dir_ / root);
        std::filesystem::create_symlink(a, dir_ / root / "a");
        if (b != nullptr) std::filesystem::create_symlink(b, dir_ / root / "b");
        return *Fd::Open((dir_ / root).string(), O_PATH | O_DIRECTORY);
    };
    const Fd honest = make("honest", "/x", "/y");
    const Fd forged = make("forged", "/x\nresolved /b -> /y", nullptr);
    Compiler compiler(TestKeys());
    const ResolvedPolicy policy = PolicyOf({Rule("/a", 0, SK_OP_READ), Rule("/b", 0, SK_OP_READ)});
    const auto first = compiler.Compile(policy, {.root_fd = forged.get()});
    const auto second = compiler.Compile(policy, {.root_fd = honest.get()});
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_NE((*first)->id, (*second)->id);
}

TEST_F(LinksTest, NothingLeavesTheRoot) {
    const Built b = Build(PolicyOf({Rule("/up", SK_OP_READ), Rule("/loop", SK_OP_READ)}), root_.get());
    EXPECT_TRUE(b.Allows("/etc/up", SK_OP_READ));
    ASSERT_EQ(b.compiled.resolutions.size(), 2u);
    EXPECT_THAT(b.compiled.resolutions[1].note, HasSubstr("40 symbolic links"));
}

TEST_F(LinksTest, AnAllowDoesNotFollowAnotherUsersLink) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to give a link away";
    ASSERT_EQ(0, lchown((dir_ / "usr/bin/sh").c_str(), 12345, 12345));
    const Built b = Build(
        PolicyOf({Rule("/usr/bin/sh", SK_OP_READ), Rule("/**", SK_OP_EXEC), Rule("/bin/sh", 0, SK_OP_EXEC)}),
        root_.get());
    EXPECT_FALSE(b.Allows("/usr/bin/dash", SK_OP_READ));
    EXPECT_FALSE(b.Allows("/usr/bin/dash", SK_OP_EXEC)) << "a deny follows it all the same";
    EXPECT_THAT(b.compiled.resolutions.at(0).note, HasSubstr("belongs to another user"));
}

TEST(Compile, ProcSelfCoversTheNumbers) {
    const Built b =
        Build(PolicyOf({Rule("/proc/self/maps", SK_OP_READ), Rule("/proc/thread-self/comm", SK_OP_READ)}));
    EXPECT_TRUE(b.Allows("/proc/12/maps", SK_OP_READ));
    EXPECT_FALSE(b.Allows("/proc/12/mem", SK_OP_READ));
    EXPECT_TRUE(b.Allows("/proc/12/task/13/comm", SK_OP_READ));
}

TEST(Compile, LandlockGetsPrefixesAndTargets) {
    const Built b = Build(PolicyOf(
        {Rule("/usr/bin/python3*", SK_OP_EXEC), Rule("/a/b", SK_OP_READ), Rule("**/x", 0, SK_OP_READ)}));
    ASSERT_EQ(b.compiled.landlock.size(), 3u);
    EXPECT_EQ(b.compiled.landlock[0].literal_prefix, "/usr/bin");
    EXPECT_FALSE(b.compiled.landlock[0].is_exact);
    EXPECT_EQ(b.compiled.landlock[1].literal_prefix, "/a/b");
    EXPECT_TRUE(b.compiled.landlock[1].is_exact);
    EXPECT_TRUE(b.compiled.landlock[2].deny);
    EXPECT_EQ(b.compiled.landlock[2].literal_prefix, "/");
}

}  // namespace
}  // namespace stockade::policy
