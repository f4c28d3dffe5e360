// The kernel side alone, without launcher or agent: a child in a cgroup of the test's own.
#include "userspace/kernel/sensor.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bpf/wire/exec.h"
#include "bpf/wire/slot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/kernel/pins.h"
#include "userspace/kernel/probe.h"
#include "userspace/kernel/probe_pins.h"
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

// A cgroup and a child in it that waits until Go, then runs `body` and exits with its result.
class Child {
  public:
    explicit Child(const std::string& name, std::function<int()> body) {
        auto report = Probe({.canaries = false});
        dir_ = absl::StrCat(report->cgroup2_mount, "/", name, "_", getpid());
        EXPECT_EQ(mkdir(dir_.c_str(), 0755), 0) << strerror(errno);
        cgroup_ = *Fd::Open(dir_, O_RDONLY | O_DIRECTORY);
        EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0) {
            char go;
            close(pipe_[1]);
            _exit(read(pipe_[0], &go, 1) == 1 ? body() : 99);
        }
        close(pipe_[0]);
        Fd procs = *Fd::Open(dir_ + "/cgroup.procs", O_WRONLY);
        EXPECT_TRUE(WriteAll(procs.get(), absl::StrCat(pid_)).ok());
        pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    }
    int Go() {
        Start();
        return Wait();
    }
    void Start() { EXPECT_EQ(write(pipe_[1], "g", 1), 1); }
    int Wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }
    ~Child() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(pipe_[1]);
        rmdir(dir_.c_str());
    }
    std::string dir_;
    Fd cgroup_, pidfd_;
    int pipe_[2];
    pid_t pid_ = -1;
};

int RunProgram(const char* program) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "/etc/passwd", nullptr);
        _exit(errno == EPERM ? 77 : 78);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

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
        auto compiled = CompileText(kPolicy, sensor_->keys());
        auto index = sensor_->PublishPolicy(compiled.cells);
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
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
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
    auto index = sensor_->PublishPolicy(CompileText(kPolicy, sensor_->keys()).cells);
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

// As an agent that comes after another: a container's has the pid of the one before.
class TakeOverTest : public ::testing::Test {
  protected:
    void SetUp() override { dir_ = absl::StrCat("/sys/fs/bpf/sk_sensor_test_", getpid()); }
    void TearDown() override {
        sensor_.reset();
        EXPECT_TRUE(RemovePins("/sys/fs/bpf", std::filesystem::path(dir_).filename()).ok());
    }
    void Make() {
        sensor_.reset();
        auto sensor = Sensor::Create({.pin_dir = dir_});
        ASSERT_TRUE(sensor.ok()) << sensor.status();
        sensor_ = *std::move(sensor);
    }
    std::vector<std::string> Sets() { return *PinDirectories(absl::StrCat(dir_, "/abi", kPinAbi)); }

    std::string dir_;
    std::unique_ptr<Sensor> sensor_;
};

TEST_F(TakeOverTest, AnAgentOfTheSamePidAdopts) {
    ASSERT_NO_FATAL_FAILURE(Make());
    EXPECT_FALSE(sensor_->adopted());
    const std::vector<std::string> first = Sets();
    for (int i = 0; i < 2; i++) {
        ASSERT_NO_FATAL_FAILURE(Make());
        EXPECT_TRUE(sensor_->adopted());
        EXPECT_THAT(Sets(), ::testing::SizeIs(3)) << "maps, the earlier set and ours";
        EXPECT_TRUE(sensor_->RemoveEarlierSets().ok());
    }
    EXPECT_THAT(Sets(), ::testing::SizeIs(2)) << "maps and one set";
    EXPECT_NE(Sets(), first);
}

TEST_F(TakeOverTest, OneThatFailsLeavesTheEarlierSetAndNoOther) {
    ASSERT_NO_FATAL_FAILURE(Make());
    const std::vector<std::string> first = Sets();
    ASSERT_NO_FATAL_FAILURE(Make());
    EXPECT_FALSE(sensor_->AttachNetwork(-1).ok());
    sensor_.reset();
    EXPECT_THAT(Sets(), ::testing::UnorderedElementsAreArray(first));
}

TEST_F(TakeOverTest, AFailedBindLeavesNoSlot) {
    ASSERT_NO_FATAL_FAILURE(Make());
    const std::string maps = absl::StrCat(dir_, "/abi", kPinAbi, "/maps/");
    Fd cgroups(bpf_obj_get((maps + "cgroups").c_str()));
    Fd slots(bpf_obj_get((maps + "slots").c_str()));
    ASSERT_TRUE(cgroups.ok() && slots.ok());
    uint32_t owner = 1;
    uint64_t cgroup = ~uint64_t{0};
    while (bpf_map_update_elem(cgroups.get(), &cgroup, &owner, BPF_ANY) == 0) cgroup--;

    Child child("sk_failed_bind", [] { return 0; });
    auto index = sensor_->PublishPolicy(CompileText(kPolicy, sensor_->keys()).cells);
    ASSERT_TRUE(index.ok()) << index.status();
    const Sensor::Binding binding{
        .cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index};
    EXPECT_FALSE(sensor_->BindSlot(binding).ok());
    for (uint32_t i = 1; i < SK_MAX_SLOTS; i++) {
        sk_slot slot{};
        ASSERT_EQ(bpf_map_lookup_elem(slots.get(), &i, &slot), 0);
        ASSERT_EQ(slot.state, uint32_t{SK_SLOT_FREE}) << i;
    }
    cgroup++;
    ASSERT_EQ(bpf_map_delete_elem(cgroups.get(), &cgroup), 0);
    auto ref = sensor_->BindSlot(binding);
    ASSERT_TRUE(ref.ok()) << ref.status();
    EXPECT_TRUE(sensor_->FreeSlot(*ref).ok());
}

TEST_F(TakeOverTest, AWaitForTheRingsCanBeEnded) {
    ASSERT_NO_FATAL_FAILURE(Make());
    const auto none = [](Ring, std::span<const uint8_t>) {};
    constexpr int kLongMs = 60'000;
    const uint64_t begin = BootNow();
    sensor_->WakeRings();  // before the wait
    ASSERT_TRUE(sensor_->PollRings(kLongMs, none).ok());
    std::thread waker([&] { sensor_->WakeRings(); });  // before or in it
    EXPECT_TRUE(sensor_->PollRings(kLongMs, none).ok());
    waker.join();
    EXPECT_LT(BootNow() - begin, uint64_t{kLongMs} * 1'000'000 / 2);
}

// What a reader had in hand when it died is read again; what it has released is not.
TEST_F(TakeOverTest, OnlyWhatWasReleasedIsGoneFromTheRings) {
    std::vector<uint64_t> seen;
    const auto read = [&] {
        seen.clear();
        const auto keep = [&](Ring, std::span<const uint8_t> record) {
            sk_head head;
            ASSERT_GE(record.size(), sizeof(head));
            memcpy(&head, record.data(), sizeof(head));
            if (head.kind == SK_KIND_FILE && head.code == SK_CODE_OK) seen.push_back(head.kernel_seq);
        };
        for (int count = 1; count > 0;) {
            auto polled = sensor_->PollRings(0, keep);
            ASSERT_TRUE(polled.ok()) << polled.status();
            count = *polled;
        }
    };
    ASSERT_NO_FATAL_FAILURE(Make());
    Child child("sk_rings", [] {
        for (int i = 0; i < 5; i++) close(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
        return 0;
    });
    auto index = sensor_->PublishPolicy(CompileText(kPolicy, sensor_->keys()).cells);
    ASSERT_TRUE(index.ok()) << index.status();
    auto ref = sensor_->BindSlot(
        {.cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index});
    ASSERT_TRUE(ref.ok()) << ref.status();
    ASSERT_TRUE(sensor_->Label(*ref, child.pidfd_.get()).ok());
    EXPECT_EQ(child.Go(), 0);
    ASSERT_NO_FATAL_FAILURE(read());
    const std::vector<uint64_t> first = seen;
    EXPECT_THAT(first, ::testing::SizeIs(::testing::Ge(5)));
    ASSERT_NO_FATAL_FAILURE(read());
    EXPECT_THAT(seen, ::testing::IsEmpty()) << "one reader hands a record on once";
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_NO_FATAL_FAILURE(read());
    EXPECT_EQ(seen, first);
    EXPECT_FALSE(sensor_->RingsHalfHeld());
    sensor_->ReleaseRings(sensor_->Handed());
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_NO_FATAL_FAILURE(read());
    EXPECT_THAT(seen, ::testing::IsEmpty());
    EXPECT_TRUE(sensor_->FreeSlot(*ref).ok());
}

// What a child that connects without pause has seen; in memory that it shares with the test.
struct Attempts {
    std::atomic<uint64_t> refused, through;
    std::atomic<bool> stop;
};

int ConnectUntilStopped(Attempts& attempts) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (!attempts.stop) {
        const bool refused = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 && errno == EPERM;
        (refused ? attempts.refused : attempts.through)++;
    }
    return fd < 0 ? 98 : 0;
}

TEST_F(TakeOverTest, TheNetworkIsNeverOpen) {
    void* shared = mmap(nullptr, sizeof(Attempts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    auto& attempts = *new (shared) Attempts{};
    Child child("sk_take_over", [&] { return ConnectUntilStopped(attempts); });
    // So many from now on that none of a state in between was passed over.
    const auto await_more = [&] {
        const uint64_t enough = attempts.refused + attempts.through + 100;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (attempts.refused + attempts.through < enough) {
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the child stands still";
            sched_yield();
        }
    };
    ASSERT_NO_FATAL_FAILURE(Make());
    auto index = sensor_->PublishPolicy(CompileText(kPolicy, sensor_->keys()).cells);
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    auto ref = sensor_->BindSlot(
        {.cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index});
    ASSERT_TRUE(ref.ok()) << ref.status();
    ASSERT_TRUE(sensor_->Label(*ref, child.pidfd_.get()).ok());
    child.Start();
    await_more();
    sensor_.reset();
    await_more();
    ASSERT_NO_FATAL_FAILURE(Make());
    await_more();
    EXPECT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    EXPECT_TRUE(sensor_->RemoveEarlierSets().ok());
    await_more();
    attempts.stop = true;
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_EQ(attempts.through, 0u) << "of " << attempts.refused + attempts.through;
    EXPECT_TRUE(sensor_->FreeSlot(*ref).ok());
    munmap(shared, sizeof(Attempts));
}

}  // namespace
}  // namespace stockade::kernel
