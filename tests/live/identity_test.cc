// A task belongs to its sandbox from birth to death, wherever it goes; who leaves condemns it; who comes in is judged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/live/sandbox.h"

namespace stockade::live {
namespace {

class IdentityTest : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_NE(TheSensor(), nullptr); }
    void ExpectCondemned(const kernel::SlotRef& ref, uint32_t code) {
        auto state = TheSensor()->ReadState(ref);
        ASSERT_TRUE(state.ok()) << state.status();
        EXPECT_NE(state->condemned_ns, 0u);
        EXPECT_EQ(state->condemned_code, code);
    }
    sk_state State(const kernel::SlotRef& ref) { return *TheSensor()->ReadState(ref); }
};

// A cgroup beside the sandboxes.
class Outside {
  public:
    Outside() : path_(absl::StrCat(ParentCgroup(), "/outside")) { EXPECT_EQ(mkdir(path_.c_str(), 0755), 0); }
    ~Outside() { (void)rmdir(path_.c_str()); } // after its last task, which the tests wait for
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

void Move(pid_t pid, const std::string& cgroup) {
    auto procs = Fd::Open(cgroup + "/cgroup.procs", O_WRONLY);
    ASSERT_TRUE(procs.ok()) << procs.status();
    Status moved = WriteAll(procs->get(), absl::StrCat(pid));
    ASSERT_TRUE(moved.ok()) << moved;
}

TEST_F(IdentityTest, ForkedChainAndSessionsAreCounted) {
    Sandbox sandbox({}, {"fork", "12"});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("done"));
    EXPECT_EQ(State(sandbox.ref()).tasks, 13);
    sandbox.CloseInput();
    Result result = sandbox.Finish();
    EXPECT_FALSE(result.timed_out);
}

TEST_F(IdentityTest, ThreadsAreCounted) {
    Sandbox sandbox({}, {"threads", "5"});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("done"));
    EXPECT_EQ(State(sandbox.ref()).tasks, 6);
    sandbox.CloseInput();
    sandbox.Finish();
}

TEST_F(IdentityTest, ForkBombIsLabelledToTheLast) {
    const int count = InGuest() ? 100 : 400;
    Sandbox sandbox({}, {"fork", absl::StrCat(count)});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("done"));
    EXPECT_EQ(State(sandbox.ref()).tasks, count + 1);
    EXPECT_EQ((*TheSensor()->ReadErrors())[SK_ERROR_LABEL_STORAGE], 0u);
    sandbox.CloseInput();
    EXPECT_FALSE(sandbox.Finish().timed_out);
}

TEST_F(IdentityTest, CountReturnsToZeroAndIsReported) {
    Result result = RunSandboxed({}, {"exec_orphan", TriggersPath(), "say", "x"});
    EXPECT_EQ(result.state.tasks, 0) << result.Describe();
    bool empty = false;
    for (const Record& record : result.records) empty |= record.head.kind == SK_KIND_LIFECYCLE;
    EXPECT_TRUE(empty) << result.Describe();
}

// In a child cgroup of the sandbox's own the same policy holds, for files and for the network.
TEST_F(IdentityTest, ChildCgroupIsTheSameSandbox) {
    Sandbox sandbox({.grants = {"cgroup_write"}}, {"connect_tcp4", "9"});
    ASSERT_TRUE(sandbox.ok());
    std::string child = sandbox.cgroup() + "/child";
    ASSERT_EQ(mkdir(child.c_str(), 0755), 0);
    Move(sandbox.pid(), child);
    EXPECT_EQ(State(sandbox.ref()).condemned_ns, 0u);
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_NE(result.Find(SK_CODE_CONNECT_NOT_ALLOWED), nullptr) << result.Describe();
    rmdir(child.c_str());
}

TEST_F(IdentityTest, TaskMovedOutCondemns) {
    Outside outside;
    Sandbox sandbox({.read = {"/etc/passwd"}}, {"open_loop", "/etc/passwd"});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("A"));
    Move(sandbox.pid(), outside.path());
    ExpectCondemned(sandbox.ref(), SK_CODE_LEFT_CGROUP);
    // Its next judged call is its last.
    Result result = sandbox.Finish();
    EXPECT_TRUE(result.killed()) << result.Describe();
    EXPECT_FALSE(result.timed_out);
}

// Another sandbox's cgroup is outside as well: its policy is not ours.
TEST_F(IdentityTest, TaskMovedIntoAnotherSandboxCondemnsItsOwn) {
    Sandbox other({.read = {"/etc/passwd"}}, {"open_loop", "/etc/passwd"});
    Sandbox sandbox({.read = {"/etc/passwd"}}, {"open_loop", "/etc/passwd"});
    ASSERT_TRUE(other.ok() && sandbox.ok());
    other.Go();
    sandbox.Go();
    ASSERT_TRUE(sandbox.WaitOutput("A"));
    Move(sandbox.pid(), other.cgroup());
    ExpectCondemned(sandbox.ref(), SK_CODE_LEFT_CGROUP);
    Result result = sandbox.Finish();
    EXPECT_TRUE(result.killed()) << result.Describe();
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(State(other.ref()).condemned_ns, 0u);
    EXPECT_TRUE(other.WaitMore(100));
}

TEST_F(IdentityTest, WritingItselfOutIsRefusedOrCondemns) {
    Outside outside;
    Sandbox sandbox({.write = {absl::StrCat(outside.path(), "/**")}, .grants = {"cgroup_write"}}, {"write_procs", outside.path() + "/cgroup.procs"});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_TRUE(result.killed()) << result.Describe();
    ExpectCondemned(sandbox.ref(), SK_CODE_LEFT_CGROUP);
}

TEST_F(IdentityTest, ChildClonedOutsideNeverRuns) {
    Outside outside;
    Sandbox sandbox({}, {"clone_into", outside.path()});
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_FALSE(absl::StrContains(result.output, "child")) << "the child ran: " << result.Describe();
    EXPECT_EQ(result.state.tasks, 0);
    if (UnderLsm()) { // refused before the child is made
        EXPECT_TRUE(absl::StrContains(result.output, "EPERM")) << result.Describe();
        EXPECT_NE(result.Find(SK_CODE_ESCAPE), nullptr) << result.Describe();
        return;
    }
    EXPECT_TRUE(result.killed()) << result.Describe();
    ExpectCondemned(sandbox.ref(), SK_CODE_LEFT_CGROUP);
}

TEST_F(IdentityTest, CondemnedSandboxDoesNothingMore) {
    Sandbox sandbox({.read = {"/etc/passwd"}}, {"open_read", "/etc/passwd"});
    ASSERT_TRUE(sandbox.ok());
    ASSERT_TRUE(TheSensor()->Condemn(sandbox.ref(), SK_CODE_ESCAPE).ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_FALSE(absl::StrContains(result.output, "done")) << result.Describe();
    EXPECT_NE(result.exit_code(), 0);
}

// Labelled by nobody: what its cgroup says counts, and `entered:` decides over its next execve.
TEST_F(IdentityTest, TaskWithoutLabelIsEntered) {
    Sandbox denied({}, {"say", "it ran"}, -1, false);
    ASSERT_TRUE(denied.ok());
    denied.Go();
    Result result = denied.Finish();
    EXPECT_FALSE(absl::StrContains(result.output, "it ran")) << result.Describe();
    const Record* record = result.Find(SK_CODE_ENTERED);
    ASSERT_NE(record, nullptr) << result.Describe();
    EXPECT_TRUE(record->head.flags & SK_RECORD_ENTERED);
}

TEST_F(IdentityTest, EnteredTaskIsJudgedFromItsExecveOn) {
    Sandbox sandbox({.entered = "enforce"}, {"open_read", "/etc/passwd"}, -1, false);
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_NE(result.Find(SK_CODE_READ_NOT_ALLOWED), nullptr) << result.Describe();
    EXPECT_FALSE(absl::StrContains(result.output, "done")) << result.Describe();
}

// Where nobody enters, a task without a label is a child whose birth the kernel did not show us: judged at once.
TEST_F(IdentityTest, TaskWithoutLabelInAClosedSandboxIsJudged) {
    Sandbox sandbox({.closed = true}, {"open_read", "/etc/passwd"}, -1, false);
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_EQ(result.Find(SK_CODE_ENTERED), nullptr) << result.Describe();
    EXPECT_NE(result.Find(SK_CODE_READ_NOT_ALLOWED), nullptr) << result.Describe();
    EXPECT_FALSE(absl::StrContains(result.output, "done")) << result.Describe();
}

TEST_F(IdentityTest, ObservedEntryRunsFreelyAndIsTold) {
    Sandbox sandbox({.entered = "observe"}, {"open_read", "/etc/passwd"}, -1, false);
    ASSERT_TRUE(sandbox.ok());
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_TRUE(absl::StrContains(result.output, "done")) << result.Describe();
    bool told = false;
    for (const Record& record : result.records) told |= record.head.kind == SK_KIND_EXEC && (record.head.flags & SK_RECORD_ENTERED);
    EXPECT_TRUE(told) << result.Describe();
}

TEST_F(IdentityTest, TaskPresentAtBindingIsJudgedByThePolicy) {
    Sandbox sandbox({}, {"open_read", "/etc/passwd"}, -1, false);
    ASSERT_TRUE(sandbox.ok());
    auto labelled = TheSensor()->LabelPresent(sandbox.ref());
    ASSERT_TRUE(labelled.ok()) << labelled.status();
    EXPECT_EQ(*labelled, 1);
    sandbox.Go();
    Result result = sandbox.Finish();
    EXPECT_EQ(result.Find(SK_CODE_ENTERED), nullptr) << result.Describe();
    EXPECT_NE(result.Find(SK_CODE_READ_NOT_ALLOWED), nullptr) << result.Describe();
}

TEST_F(IdentityTest, SlotOfAnotherGenerationIsAnotherSandbox) {
    kernel::SlotRef first;
    {
        Sandbox sandbox({}, {"say", "x"});
        ASSERT_TRUE(sandbox.ok());
        first = sandbox.ref();
        sandbox.Go();
        sandbox.Finish();
    }
    EXPECT_FALSE(TheSensor()->ReadState(first).ok()) << "a freed slot still answers";
    EXPECT_FALSE(TheSensor()->Condemn(first, SK_CODE_ESCAPE).ok());
    EXPECT_FALSE(TheSensor()->FreeSlot(first).ok());
}

// The label of a sandbox that is gone gives nothing: everything is denied.
TEST_F(IdentityTest, SurvivorOfAFreedSlotIsDeniedEverything) {
    Sandbox sandbox({.read = {"/etc/passwd"}}, {"open_read", "/etc/passwd"});
    ASSERT_TRUE(sandbox.ok());
    kernel::SlotRef ref = sandbox.ref();
    Sandbox other({}, {"fork", "0"}); // keeps the system call exit attached
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(TheSensor()->FreeSlot(ref).ok());
    sandbox.Go();
    EXPECT_FALSE(sandbox.WaitOutput("done")) << sandbox.output();
    auto again = TheSensor()->BindSlot({.cgroup_fd = sandbox.cgroup_fd(), .root_pidfd = other.pidfd(), .policy_index = 0});
    ASSERT_TRUE(again.ok()) << again.status();
    sandbox.Adopt(*again);
    EXPECT_NE(sandbox.Finish().exit_code(), 0);
}

// Nor does it touch the sandbox that has its slot now.
TEST_F(IdentityTest, SurvivorChargesNothingToTheNextSandboxOfItsSlot) {
    Sandbox survivor({}, {"fork", "3"});
    ASSERT_TRUE(survivor.ok());
    Sandbox other({}, {"fork", "0"}); // keeps the system call exit attached
    ASSERT_TRUE(other.ok());
    const kernel::SlotRef gone = survivor.ref();
    ASSERT_TRUE(TheSensor()->FreeSlot(gone).ok());
    kernel::SlotRef next;
    for (int i = 0; i < 2 * SK_MAX_SLOTS; i++) {
        auto bound = TheSensor()->BindSlot({.cgroup_fd = survivor.cgroup_fd(), .root_pidfd = other.pidfd(), .policy_index = 0});
        ASSERT_TRUE(bound.ok()) << bound.status();
        next = *bound;
        if (next.slot == gone.slot) break;
        ASSERT_TRUE(TheSensor()->FreeSlot(next).ok());
    }
    ASSERT_EQ(next.slot, gone.slot);
    ASSERT_NE(next.generation, gone.generation);
    survivor.Go();
    EXPECT_FALSE(survivor.WaitOutput("done")) << survivor.output();
    auto state = TheSensor()->ReadState(next);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->condemned_ns, 0u);
    EXPECT_EQ(state->tasks, 0);
    EXPECT_EQ(state->seq, 0u);
    for (uint64_t violations : state->violations) EXPECT_EQ(violations, 0u);
    survivor.Adopt(next);
    EXPECT_NE(survivor.Finish().exit_code(), 0);
}

// As many as a node may have, in as many cgroups; the last one is judged as the first.
TEST_F(IdentityTest, EverySlotAtOnce) {
    const int count = InGuest() ? 256 : SK_MAX_SLOTS - 1;
    Sandbox first({}, {"open_read", "/etc/passwd"});
    ASSERT_TRUE(first.ok());
    struct Bound {
        std::string path;
        kernel::SlotRef ref;
    };
    std::vector<Bound> bound;
    std::set<uint32_t> slots = {first.ref().slot};
    for (int i = 1; i < count; i++) {
        std::string path = absl::StrCat(ParentCgroup(), "/many", i);
        ASSERT_EQ(mkdir(path.c_str(), 0755), 0) << strerror(errno);
        auto dir = Fd::Open(path, O_RDONLY | O_DIRECTORY);
        auto ref = TheSensor()->BindSlot({.cgroup_fd = dir->get(), .root_pidfd = first.pidfd(), .policy_index = 0});
        EXPECT_TRUE(ref.ok()) << i << ": " << ref.status();
        if (!ref.ok()) {
            rmdir(path.c_str());
            break;
        }
        bound.push_back({path, *ref});
        slots.insert(ref->slot);
    }
    EXPECT_EQ(slots.size(), static_cast<size_t>(count));
    if (count == SK_MAX_SLOTS - 1) {
        // One more is refused, and says what to do; nobody's slot is taken for it.
        const std::string path = absl::StrCat(ParentCgroup(), "/one_more");
        ASSERT_EQ(mkdir(path.c_str(), 0755), 0) << strerror(errno);
        auto dir = Fd::Open(path, O_RDONLY | O_DIRECTORY);
        auto ref = TheSensor()->BindSlot({.cgroup_fd = dir->get(), .root_pidfd = first.pidfd(), .policy_index = 0});
        EXPECT_TRUE(absl::IsResourceExhausted(ref.status())) << ref.status();
        EXPECT_TRUE(absl::StrContains(ref.status().message(), "stockade kill")) << ref.status();
        EXPECT_EQ(TheSensor()->LiveSlots()->size(), static_cast<size_t>(count));
        EXPECT_EQ(rmdir(path.c_str()), 0);
        EXPECT_TRUE(TheSensor()->FreeSlot(bound.back().ref).ok());
        EXPECT_EQ(rmdir(bound.back().path.c_str()), 0);
        bound.pop_back();
    }
    first.Go();
    Result result = first.Finish();
    EXPECT_NE(result.Find(SK_CODE_READ_NOT_ALLOWED), nullptr) << result.Describe();
    for (const Bound& one : bound) {
        EXPECT_TRUE(TheSensor()->FreeSlot(one.ref).ok());
        EXPECT_EQ(rmdir(one.path.c_str()), 0);
    }
}

}  // namespace
}  // namespace stockade::live
