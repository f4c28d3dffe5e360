// The kernel side alone, without launcher or agent: a child in a cgroup of the test's own.
#include "userspace/kernel/sensor.h"

#include <fcntl.h>

#include <chrono>
#include <iostream>

#include "bpf/wire/exec.h"
#include "bpf/wire/slot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/kernel/sensor_testing.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::kernel {
namespace {

constexpr char kPolicy[] = R"(
apiVersion: stockade.dev/v1
kind: SandboxPolicy
metadata: {name: test}
spec:
  violation: deny
  exec: {allow: [/usr/bin/true, /usr/bin/cat]}
  files:
    read: [/usr/**, /etc/passwd]
    write: [/tmp/allowed/**]
  network: {allow: []}
  record: {exec: all, files: all, network: all}
)";

policy::CompiledPolicy CompileText(const std::string& text, const sk_hash_keys& keys) {
    std::vector<policy::Diagnostic> diagnostics;
    policy::PolicyLibrary library;
    policy::ParseResult parsed = policy::ParseFiles({{"test.yaml", text}});
    library.Add(std::move(parsed.policies), diagnostics);
    auto resolved = library.Resolve("test", diagnostics);
    for (const auto& d : diagnostics) std::cerr << d.message << "\n";
    Fd root = *Fd::Open("/", O_PATH);
    auto compiled = policy::Compile(*resolved, keys, {.root_fd = root.get()});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *std::move(compiled);
}

}  // namespace

std::vector<union sk_cell> PolicyCells(const sk_hash_keys& keys) {
    const policy::CompiledPolicy compiled = CompileText(kPolicy, keys);
    return {compiled.cells.begin(), compiled.cells.end()};
}

namespace {

int OpenUntilStopped() {
    for (;;) close(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
    return 0;
}

class SensorTest : public ::testing::Test {
  protected:
    void SetUp() override {
        auto sensor = Sensor::Create({.pin_dir = ""});
        ASSERT_TRUE(sensor.ok()) << sensor.status();
        sensor_ = *std::move(sensor);
    }
    int RunChild(std::function<int()> body) {
        Child child("sk_sensor_test", std::move(body));
        const std::vector<union sk_cell> cells = PolicyCells(sensor_->keys());
        auto index = sensor_->PublishPolicy(cells);
        EXPECT_TRUE(index.ok()) << index.status();
        EXPECT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
        auto ref = sensor_->BindSlot(
            {.cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index});
        EXPECT_TRUE(ref.ok()) << ref.status();
        auto labelled = sensor_->Label(*ref, child.pidfd_.get());
        EXPECT_TRUE(labelled.ok()) << labelled;
        int status = child.Go();
        (void)sensor_->PollRings(0, [&](Ring, std::span<const uint8_t> record) {
            sk_head head;
            memcpy(&head, record.data(), sizeof(head));
            records_.push_back(head);
        });
        state_ = *sensor_->ReadState(*ref);
        EXPECT_TRUE(sensor_->FreeSlot(*ref).ok());
        return StatusOf(status);
    }
    std::unique_ptr<Sensor> sensor_;
    std::vector<sk_head> records_;
    sk_state state_{};
};

TEST_F(SensorTest, AllowedProgramRuns) {
    EXPECT_EQ(RunChild([] { return RunProgram("/usr/bin/true"); }), 0);
    EXPECT_EQ(state_.violations[SK_SECTION_EXEC], 0u);
    EXPECT_GE(state_.allowed[SK_SECTION_EXEC], 1u);
}

TEST_F(SensorTest, AllowedReadWorks) {
    EXPECT_EQ(RunChild([] { return RunProgram("/usr/bin/cat"); }), 0);
}

TEST_F(SensorTest, OtherProgramDoesNotRun) {
    int result = RunChild([] { return RunProgram("/usr/bin/id"); });
    EXPECT_EQ(result, sensor_->backend() == Backend::kLsm ? 77 : 128 + SIGKILL);
    EXPECT_EQ(state_.violations[SK_SECTION_EXEC], 1u);
    bool told = false;
    for (const sk_head& head : records_) told |= head.code == SK_CODE_EXEC_NOT_ALLOWED;
    EXPECT_TRUE(told);
}

TEST_F(SensorTest, OtherFileIsNotRead) {
    int result = RunChild([] {
        int fd = open("/etc/shadow", O_RDONLY);
        return fd < 0 && errno == EPERM ? 77 : 0;
    });
    EXPECT_EQ(result, sensor_->backend() == Backend::kLsm ? 77 : 128 + SIGKILL);
    EXPECT_EQ(state_.violations[SK_SECTION_FILES], 1u);
}

// A task that the binding finds at work is labelled by its cgroup, as one that has entered, before we come to it.
TEST_F(SensorTest, ATaskThatWasFasterIsTheSandboxesOwn) {
    Child child("sk_faster", [] { return OpenUntilStopped(); });
    auto index = sensor_->PublishPolicy(PolicyCells(sensor_->keys()));
    ASSERT_TRUE(index.ok()) << index.status();
    child.Start();
    auto ref = sensor_->BindSlot(
        {.cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index});
    ASSERT_TRUE(ref.ok()) << ref.status();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (sensor_->ReadState(*ref)->tasks == 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    const Status labelled = sensor_->Label(*ref, child.pidfd_.get());
    EXPECT_TRUE(labelled.ok()) << labelled;
    EXPECT_EQ(sensor_->ReadState(*ref)->tasks, 1);
    kill(child.pid_, SIGTERM);
    EXPECT_EQ(child.Wait(), SIGTERM);
    EXPECT_TRUE(sensor_->FreeSlot(*ref).ok());
}

}  // namespace
}  // namespace stockade::kernel
