// What the tests of real guests share: images made once, a cgroup and a directory for each run, and that nothing is left.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "userspace/guest/driver.h"
#include "userspace/guest/image_store.h"
#include "userspace/launch/cgroup.h"

namespace stockade::guest {

struct TestImages {
    Fd kernel, initramfs, hostile_initramfs, root, input;
};

class GuestTest : public testing::Test {
  protected:
    static void SetUpTestSuite();
    void SetUp() override;
    void TearDown() override;

    // Busybox's shell runs `script`.
    GuestSpec Spec(const std::string& script);
    // Runs it with both outputs kept, and sees that nothing of it is left.
    GuestResult Go(const GuestSpec& spec);
    // The pid of QEMU while one runs; waits for it.
    pid_t WaitForQemu();
    // Until no task is in the cgroup.
    void ExpectEmptyCgroup();

    static std::unique_ptr<TestImages> images_;
    std::string top_;   // a directory of this test's own
    std::string home_;  // of the cgroups
    launch::SandboxCgroup cgroup_;
    Fd out_dir_;
    std::string stdout_, stderr_;
    std::string stdin_;
    // What a failed expectation is looked at by.
    std::string Told(const GuestResult& result) const;
};

}  // namespace stockade::guest
