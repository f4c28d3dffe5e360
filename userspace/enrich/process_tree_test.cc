#include "userspace/enrich/process_tree.h"

#include <gtest/gtest.h>

namespace stockade::enrich {
namespace {

v1::Event Base(uint32_t pid, uint64_t start) {
    v1::Event event;
    event.mutable_process()->set_pid(pid);
    event.mutable_process()->set_start_boot_ns(start);
    return event;
}

class ProcessTreeTest : public testing::Test {
  protected:
    v1::Process Exec(uint32_t pid, uint64_t start, const char* path, const char* role = "program",
                     const char* outcome = "done") {
        v1::Event event = Base(pid, start);
        event.set_outcome(outcome);
        event.mutable_exec()->set_path(path);
        event.mutable_exec()->set_role(role);
        event.mutable_exec()->add_argv(path);
        tree_.Enrich(&event);
        return event.process();
    }
    void Fork(uint32_t pid, uint64_t start, uint32_t child, uint64_t child_start) {
        v1::Event event = Base(pid, start);
        event.mutable_fork()->set_child_pid(child);
        event.mutable_fork()->set_child_start_boot_ns(child_start);
        tree_.Enrich(&event);
    }
    v1::Process Look(uint32_t pid, uint64_t start) {
        v1::Event event = Base(pid, start);
        event.mutable_net();
        tree_.Enrich(&event);
        return event.process();
    }
    void Exit(uint32_t pid, uint64_t start) {
        v1::Event event = Base(pid, start);
        event.mutable_exit();
        tree_.Enrich(&event);
    }

    ProcessTree tree_{{.max_processes = 64, .max_exited = 4}};
};

TEST_F(ProcessTreeTest, ChildrenInheritAndKnowTheirAncestors) {
    Exec(1, 10, "/bin/sh");
    Fork(1, 10, 2, 20);
    EXPECT_EQ(Look(2, 20).exe(), "/bin/sh");
    const v1::Process child = Exec(2, 20, "/usr/bin/python3");
    EXPECT_EQ(child.exe(), "/usr/bin/python3");
    ASSERT_EQ(child.ancestry_size(), 1);
    EXPECT_EQ(child.ancestry(0).exe(), "/bin/sh");
    Exec(1, 10, "/bin/dash");
    Fork(1, 10, 3, 30);
    EXPECT_EQ(Look(3, 30).ancestry(0).exe(), "/bin/dash");
    EXPECT_EQ(Look(2, 20).ancestry(0).exe(), "/bin/sh");
}

TEST_F(ProcessTreeTest, AReusedPidIsAnotherProcess) {
    Exec(1, 10, "/a");
    EXPECT_EQ(Look(1, 11).exe(), "");
    EXPECT_EQ(Look(1, 10).exe(), "/a");
}

TEST_F(ProcessTreeTest, WhatNeverRanIsNoImage) {
    Exec(1, 10, "/a");
    EXPECT_EQ(Exec(1, 10, "/bin/bash", "program", "prevented").exe(), "/a");
    EXPECT_EQ(Exec(1, 10, "/lib/libc.so", "mapped").exe(), "/a");
    EXPECT_EQ(Exec(1, 10, "/usr/bin/python3", "interpreter").exe(), "/usr/bin/python3");
}

TEST_F(ProcessTreeTest, AncestryIsBoundedHoweverLongTheChain) {
    Exec(1, 1, "/x");
    for (uint32_t pid = 1; pid < 1000; ++pid) {
        Fork(pid, pid, pid + 1, pid + 1);
        Exit(pid, pid);
    }
    EXPECT_EQ(Look(1000, 1000).ancestry_size(), static_cast<int>(kMaxAncestors));
    EXPECT_EQ(Look(1000, 1000).ancestry(0).pid(), 999u);
    EXPECT_LE(tree_.size(), 6u);
}

TEST_F(ProcessTreeTest, AForkBombIsBoundedAndCounted) {
    Exec(1, 1, "/x");
    for (uint32_t pid = 2; pid < 1000; ++pid) Fork(1, 1, pid, pid);
    EXPECT_EQ(tree_.size(), 64u);
    EXPECT_GT(tree_.counters().evicted_live, 900u);
    EXPECT_EQ(Look(1, 1).exe(), "/x");  // touched at each fork: not the one to go
}

TEST_F(ProcessTreeTest, LateRecordsOfTheDeadStillFindThem) {
    Exec(1, 1, "/x");
    Exit(1, 1);
    EXPECT_EQ(Look(1, 1).exe(), "/x");
}

TEST_F(ProcessTreeTest, AnEventWithoutProcessStaysWithout) {
    v1::Event event;
    event.mutable_agent();
    tree_.Enrich(&event);
    EXPECT_FALSE(event.has_process());
}

TEST_F(ProcessTreeTest, OriginalArgumentsGoToTheOriginalsAlone) {
    v1::Event exec = Base(7, 1);
    exec.mutable_exec()->set_path("/bin/x");
    exec.mutable_exec()->set_role("program");
    exec.mutable_exec()->add_argv("secret");
    auto original = std::make_unique<v1::Event>(exec);
    exec.mutable_exec()->set_argv(0, "[redacted]");
    exec.mutable_exec()->set_argv_redacted(1);
    tree_.Enrich(&exec, &original);
    EXPECT_EQ(exec.process().argv(0), "[redacted]");
    EXPECT_EQ(original->process().argv(0), "secret");
    Fork(7, 1, 8, 2);
    for (const auto& [pid, start] : {std::pair<uint32_t, uint64_t>(7, 1), {8, 2}}) {
        v1::Event later = Base(pid, start);
        std::unique_ptr<v1::Event> made;
        tree_.Enrich(&later, &made);
        EXPECT_EQ(later.process().argv(0), "[redacted]");
        ASSERT_NE(made, nullptr);
        EXPECT_EQ(made->process().argv(0), "secret");
    }
    // The next image has no secret, and its events no original.
    (void)Exec(7, 1, "/bin/y");
    v1::Event plain = Base(7, 1);
    std::unique_ptr<v1::Event> none;
    tree_.Enrich(&plain, &none);
    EXPECT_EQ(plain.process().argv(0), "/bin/y");
    EXPECT_EQ(none, nullptr);
}

TEST_F(ProcessTreeTest, AnExecSaysWhatItsParentWasStartedWith) {
    Exec(1, 1, "/bin/sh");
    Fork(1, 1, 2, 2);
    const v1::Process child = Exec(2, 2, "/bin/ls");
    ASSERT_EQ(child.ancestry_size(), 1);
    ASSERT_EQ(child.ancestry(0).argv_size(), 1);
    EXPECT_EQ(child.ancestry(0).argv(0), "/bin/sh");
    EXPECT_EQ(Look(2, 2).ancestry(0).argv_size(), 0) << "of an exec alone";
    Fork(2, 2, 3, 3);
    const v1::Process grandchild = Exec(3, 3, "/bin/cat");
    ASSERT_EQ(grandchild.ancestry_size(), 2);
    EXPECT_EQ(grandchild.ancestry(0).argv(0), "/bin/ls");
    EXPECT_EQ(grandchild.ancestry(1).argv_size(), 0) << "of the parent alone";
}

TEST_F(ProcessTreeTest, TheParentsArgumentsAreBoundedAndKeepTheirFlags) {
    v1::Event exec = Base(1, 1);
    exec.mutable_exec()->set_path("/bin/x");
    exec.mutable_exec()->set_role("program");
    exec.mutable_exec()->add_argv("x");
    exec.mutable_exec()->add_argv(std::string(kMaxParentArgv - 1, 'a'));
    exec.mutable_exec()->set_argv_escaped(true);
    tree_.Enrich(&exec);
    Fork(1, 1, 2, 2);
    const v1::Process whole = Exec(2, 2, "/bin/ls");
    EXPECT_EQ(whole.ancestry(0).argv_size(), 2);
    EXPECT_TRUE(whole.ancestry(0).argv_escaped());
    EXPECT_FALSE(whole.ancestry(0).argv_truncated());
    exec.mutable_exec()->add_argv("b");
    tree_.Enrich(&exec);
    Fork(1, 1, 3, 3);
    const v1::Process cut = Exec(3, 3, "/bin/ls");
    EXPECT_EQ(cut.ancestry(0).argv_size(), 2);
    EXPECT_TRUE(cut.ancestry(0).argv_truncated());
    EXPECT_TRUE(exec.process().argv_escaped());
    EXPECT_FALSE(exec.process().argv_truncated());
}

TEST_F(ProcessTreeTest, TheParentsSecretIsInTheOriginalAlone) {
    v1::Event exec = Base(7, 1);
    exec.mutable_exec()->set_path("/bin/x");
    exec.mutable_exec()->set_role("program");
    exec.mutable_exec()->add_argv("secret");
    auto original = std::make_unique<v1::Event>(exec);
    exec.mutable_exec()->set_argv(0, "[redacted]");
    exec.mutable_exec()->set_argv_redacted(1);
    tree_.Enrich(&exec, &original);
    Fork(7, 1, 8, 2);
    v1::Event child = Base(8, 2);
    child.mutable_exec()->set_path("/bin/y");
    child.mutable_exec()->set_role("program");
    child.mutable_exec()->add_argv("y");
    std::unique_ptr<v1::Event> made;
    tree_.Enrich(&child, &made);
    EXPECT_EQ(child.process().ancestry(0).argv(0), "[redacted]");
    EXPECT_TRUE(child.process().ancestry(0).argv_redacted());
    EXPECT_FALSE(child.process().argv_redacted());
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(made->process().ancestry(0).argv(0), "secret");
    EXPECT_FALSE(made->process().ancestry(0).argv_redacted());
    EXPECT_EQ(made->process().argv(0), "y");
}

}  // namespace
}  // namespace stockade::enrich
