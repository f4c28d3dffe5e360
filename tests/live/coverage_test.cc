// Each cell of the coverage table, by each way to do its operation: once under a policy that refuses it, and once under the same
// policy in `mode: observe`, in which the effect must happen. The effect is looked at from outside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {

std::string World::Fill(std::string text) const {
    for (const auto& [key, value] : words) text = absl::StrReplaceAll(text, {{absl::StrCat("{", key, "}"), value}});
    return text;
}

bool World::Exists(const std::string& path) const {
    struct stat info;
    return lstat(Fill(path).c_str(), &info) == 0;
}

std::string World::Content(const std::string& path) const {
    auto content = ReadFile(Fill(path), 1 << 20);
    return content.ok() ? *content : "";
}

void World::Write(const std::string& path, const std::string& content, unsigned mode) {
    auto fd = Fd::Open(Fill(path), O_WRONLY | O_CREAT | O_TRUNC, mode);
    ASSERT_TRUE(fd.ok()) << fd.status();
    ASSERT_TRUE(WriteAll(fd->get(), content).ok());
    ASSERT_EQ(fchmod(fd->get(), mode), 0);
}

void World::Copy(const std::string& from, const std::string& to) {
    auto content = ReadFile(Fill(from), 64 << 20);
    ASSERT_TRUE(content.ok()) << content.status();
    Write(to, *content, 0755);
}

namespace {

using model::Cell;

std::vector<Case> AllCases() {
    std::vector<Case> all;
    for (auto& cases : {ExecCases(), OpenCases(), PathCases(), NetCases(), SocketCases(), EscapeCases()}) all.insert(all.end(), cases.begin(), cases.end());
    return all;
}

void Append(std::vector<std::string>& to, const World& world, const std::vector<std::string>& items) {
    for (const std::string& item : items) to.push_back(world.Fill(item));
}

StatusOr<World> MakeWorld(const Case& c) {
    SK_ASSIGN_OR_RETURN(Tree tree, Tree::Create("sk_coverage"));
    SK_ASSIGN_OR_RETURN(Listeners listeners, Listeners::Create());
    World world{.tree = std::move(tree), .listeners = std::move(listeners), .words = {}, .policy = {}};
    SK_RETURN_IF_ERROR(world.tree.MakeDir("/in").status());
    SK_RETURN_IF_ERROR(world.tree.MakeDir("/no").status());
    world.words = {{"tree", world.tree.At("")}, {"in", world.tree.At("/in")}, {"no", world.tree.At("/no")},
                   {"triggers", TriggersPath()}, {"port", absl::StrCat(world.listeners.port())},
                   {"allowed", absl::StrCat(world.listeners.allowed())}, {"cgroup", ParentCgroup()}};
    world.Write("{no}/secret", "secret bytes");
    world.Write("{in}/file", "plain bytes");
    if (c.prepare) c.prepare(world);
    Policy& policy = world.policy;
    Append(policy.exec, world, c.policy.exec);
    Append(policy.libraries, world, c.policy.libraries);
    Append(policy.read, world, {"{in}/**"});
    Append(policy.read, world, c.policy.read);
    Append(policy.write, world, {"{in}/**"});
    Append(policy.write, world, c.policy.write);
    Append(policy.deny, world, c.policy.deny);
    Append(policy.network, world, c.policy.network);
    policy.grants = c.policy.grants;
    policy.loopback = {world.listeners.allowed()};
    return world;
}

class CoverageTest : public ::testing::TestWithParam<Case> {
  protected:
    void SetUp() override { ASSERT_NE(TheSensor(), nullptr); }
    Cell Expected() const {
        const Case& c = GetParam();
        const auto& own = UnderLsm() ? c.cell_lsm : c.cell_signal;
        return own ? *own : model::CoverageOf(c.operation, UnderLsm() ? model::Column::kLsm : model::Column::kSignal, MissingFeatures()).cell;
    }
    uint32_t Code() const { return !UnderLsm() && GetParam().code_signal ? GetParam().code_signal : GetParam().code; }

    // One run in a world of its own; `effect` is looked at before the world goes.
    Result Run(bool observe, bool& effect) {
        const Case& c = GetParam();
        auto world = MakeWorld(c);
        EXPECT_TRUE(world.ok()) << world.status();
        if (!world.ok()) return {};
        world->policy.observe = observe;
        std::vector<std::string> args;
        for (const std::string& arg : c.args) args.push_back(world->Fill(arg));
        Result result = RunSandboxed(world->policy, args, world->spare_fd);
        effect = c.effect ? c.effect(*world, result) : absl::StrContains(result.output, "done");
        return result;
    }
    void ExpectRecord(const Result& result, uint32_t code, uint8_t verdict, uint8_t outcome);
    void ExpectControl(const Result& result, Cell cell, bool effect);
    void ExpectCell(const Result& result, Cell cell, bool effect);
};

void CoverageTest::ExpectRecord(const Result& result, uint32_t code, uint8_t verdict, uint8_t outcome) {
    const Record* record = result.Find(code);
    ASSERT_NE(record, nullptr) << "no record of code " << code << "; " << result.Describe();
    EXPECT_EQ(record->head.verdict, verdict) << result.Describe();
    EXPECT_EQ(record->head.outcome, outcome) << result.Describe();
    EXPECT_EQ(record->head.lock, SK_LOCK_BPF) << result.Describe();
    EXPECT_EQ(record->head.slot, result.ref.slot);
    EXPECT_EQ(record->head.generation, result.ref.generation);
    for (const Record& other : result.Violations()) {
        EXPECT_TRUE(other.head.code == code || other.head.code == GetParam().also) << "another violation: " << result.Describe();
    }
}

// Observed: the effect happens, and what would have been refused is told.
void CoverageTest::ExpectControl(const Result& result, Cell cell, bool effect) {
    EXPECT_TRUE(effect) << "the control run has no effect; " << result.Describe();
    EXPECT_FALSE(result.killed()) << result.Describe();
    EXPECT_FALSE(result.timed_out) << result.Describe();
    if (cell == Cell::kSeen || cell == Cell::kUnseen) return;
    ExpectRecord(result, Code(), SK_VERDICT_DENY, SK_OUTCOME_DONE);
    const Record* record = result.Find(Code());
    if (record) {
        EXPECT_TRUE(record->head.flags & SK_RECORD_OBSERVE) << result.Describe();
    }
}

void CoverageTest::ExpectCell(const Result& result, Cell cell, bool effect) {
    EXPECT_FALSE(result.timed_out) << result.Describe();
    if (cell == Cell::kPrevented) {
        EXPECT_FALSE(effect) << "prevented, yet it happened; " << result.Describe();
        ExpectRecord(result, Code(), SK_VERDICT_DENY, SK_OUTCOME_PREVENTED);
        const Record* record = result.Find(Code());
        const bool by_signal = record && record->head.backend == SK_BACKEND_SIGNAL;
        EXPECT_TRUE(result.killed() == by_signal || GetParam().by_descendant) << result.Describe();
        if (!by_signal) {
            // perf_event_open turns it into EACCES; the loader writes its own words elsewhere.
            EXPECT_TRUE(absl::StrContains(result.output, "EPERM") || absl::StrContains(result.output, "EACCES") || GetParam().by_descendant)
                << result.Describe();
        }
    } else if (cell == Cell::kKilledAfterEffect) {
        EXPECT_TRUE(result.killed()) << result.Describe();
        EXPECT_FALSE(absl::StrContains(result.output, GetParam().after)) << "an instruction after the call; " << result.Describe();
        ExpectRecord(result, Code(), GetParam().whole ? SK_VERDICT_KILL_SANDBOX : SK_VERDICT_DENY, SK_OUTCOME_KILLED_AFTER);
        EXPECT_EQ(result.state.tasks, 0) << "somebody lived on";
        if (GetParam().lasting) {
            EXPECT_TRUE(effect) << "the table says that the effect stays; " << result.Describe();
        }
    } else {
        EXPECT_TRUE(effect) << "better than the table says; " << result.Describe();
        EXPECT_FALSE(result.killed()) << result.Describe();
        bool seen = false;
        for (const Record& record : result.records) seen |= record.head.outcome == SK_OUTCOME_SEEN;
        EXPECT_EQ(seen, cell == Cell::kSeen) << result.Describe();
        EXPECT_TRUE(result.Violations().empty()) << result.Describe();
    }
}

// Runs of programs that judge, which the kernel left out.
uint64_t LeftOut() {
    const StatusOr<uint64_t> count = TheSensor()->LeftOut();
    EXPECT_TRUE(count.ok()) << count.status();
    return count.value_or(0);
}

TEST_P(CoverageTest, IsWhatTheTableSays) {
    if (GetParam().raced && Expected() == Cell::kUnseen) GTEST_SKIP() << "unseen only when the right thread wins";
    bool control_effect = false, effect = false;
    Result control, refused;
    // A case during which a run was left out says nothing about the table: it is done again, and told.
    for (int attempt = 0; attempt < 10; attempt++) {
        const uint64_t before = LeftOut();
        control = Run(true, control_effect);
        refused = Run(false, effect);
        const uint64_t missed = LeftOut() - before;
        if (missed == 0) break;
        std::cout << "the kernel left out " << missed << " runs of programs; once more\n";
    }
    const Cell cell = Expected();
    if (GetParam().optional && !control_effect && !control.killed()) {
        EXPECT_FALSE(effect) << refused.Describe();
        // Listed in tests/skips.list for the kernels that lack it: elsewhere the trigger is broken.
        GTEST_SKIP() << "this kernel has no such route: " << control.output;
    }
    ExpectControl(control, cell, control_effect);
    ExpectCell(refused, cell, effect);
}

INSTANTIATE_TEST_SUITE_P(All, CoverageTest, ::testing::ValuesIn(AllCases()), [](const auto& info) { return info.param.name; });

// Asserted by tests of their own, elsewhere in this binary or in another.
const std::set<model::Operation> kElsewhere = {
    model::Operation::CLONED_OUT,  // live_identity_test
    model::Operation::MOVED_OUT,   // live_identity_test
};

TEST(CoverageTable, EveryRowHasACase) {
    std::set<model::Operation> covered = kElsewhere;
    for (const Case& c : AllCases()) covered.insert(c.operation);
    for (const auto& info : model::Operations()) {
        auto operation = model::FindOperation(info.id);
        ASSERT_TRUE(operation.has_value());
        EXPECT_TRUE(covered.contains(*operation)) << info.id << " is asserted by nothing";
    }
}

}  // namespace
}  // namespace stockade::live
