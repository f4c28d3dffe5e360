// One agent after another: what the next one finds pinned, keeps or loads anew, and that there is no moment without a verdict.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "bpf/wire/exec.h"
#include "bpf/wire/slot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/kernel/pins.h"
#include "userspace/kernel/probe_pins.h"
#include "userspace/kernel/sensor_testing.h"

namespace stockade::kernel {
namespace {

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
    std::string OwnSet() {
        std::string own;
        for (const std::string& name : Sets()) own = name == "maps" ? own : name;
        return own;
    }
    // The next agent cannot keep them, as one of another version.
    void SpoilPrograms() {
        const std::string set = absl::StrCat(dir_, "/abi", kPinAbi, "/", OwnSet());
        ASSERT_EQ(PinDirectories(set)->size(), 1u);
        ASSERT_TRUE(std::filesystem::remove(absl::StrCat(set, "/", PinDirectories(set)->front(), "/bss")));
    }
    using Linked = std::pair<uint32_t, uint32_t>;  // ids of the link and of its program
    std::map<std::string, Linked> Links() {
        std::map<std::string, Linked> links;
        EXPECT_THAT(Sets(), ::testing::SizeIs(2)) << "maps and one set";
        for (const auto& pin :
             std::filesystem::directory_iterator(absl::StrCat(dir_, "/abi", kPinAbi, "/", OwnSet()))) {
            if (pin.is_directory()) continue;
            Fd link(bpf_obj_get(pin.path().c_str()));
            bpf_link_info info{};
            uint32_t size = sizeof(info);
            EXPECT_EQ(bpf_obj_get_info_by_fd(link.get(), &info, &size), 0) << pin.path();
            links[pin.path().filename()] = {info.id, info.prog_id};
        }
        return links;
    }
    // The kernel detaches an unpinned link some time later, and until then both sets judge and count. The link's own id is gone before
    // that, its program's after it.
    static void WaitUntilGone(const std::map<std::string, Linked>& links) {
        const uint64_t end = BootNow() + 10'000'000'000;
        for (const auto& [name, linked] : links) {
            while (Fd(bpf_prog_get_fd_by_id(linked.second)).ok()) {
                ASSERT_LT(BootNow(), end) << name << " is attached still";
                usleep(1000);  // between two looks
            }
        }
    }
    void BindTo(const Child& child) {
        auto index = sensor_->PublishPolicy(PolicyCells(sensor_->keys()));
        ASSERT_TRUE(index.ok()) << index.status();
        auto ref = sensor_->BindSlot(
            {.cgroup_fd = child.cgroup_.get(), .root_pidfd = child.pidfd_.get(), .policy_index = *index});
        ASSERT_TRUE(ref.ok()) << ref.status();
        bound_ = *ref;
    }
    int Refusals() {
        int refusals = 0;
        EXPECT_TRUE(sensor_
                        ->PollRings(0,
                                    [&](Ring, std::span<const uint8_t> record) {
                                        sk_head head;
                                        memcpy(&head, record.data(), sizeof(head));
                                        refusals += head.code == SK_CODE_EXEC_NOT_ALLOWED;
                                    })
                        .ok());
        return refusals;
    }
    // Its program is not allowed: refused, counted and told once.
    void ExpectRefused(Child& child, const SlotRef& ref) {
        const int status = child.Go();
        EXPECT_EQ(StatusOf(status), sensor_->backend() == Backend::kLsm ? 77 : 128 + SIGKILL);
        EXPECT_EQ(sensor_->ReadState(ref)->violations[SK_SECTION_EXEC], 1u);
        EXPECT_EQ(Refusals(), 1);
    }

    std::string dir_;
    std::unique_ptr<Sensor> sensor_;
    SlotRef bound_;  // by BindTo
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

// What an agent of the same build need not load is not loaded; it judges as if it were.
TEST_F(TakeOverTest, TheSameProgramsAndLinksAreKept) {
    Child child("sk_kept", [] { return RunProgram("/usr/bin/id"); });
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    ASSERT_NO_FATAL_FAILURE(BindTo(child));
    const std::map<std::string, Linked> before = Links();
    ASSERT_THAT(before, ::testing::SizeIs(::testing::Gt(10))) << "tracepoints, system call exit, network";
    for (int i = 0; i < 2; i++) {
        ASSERT_NO_FATAL_FAILURE(Make());
        ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
        ASSERT_TRUE(sensor_->RemoveEarlierSets().ok());
        EXPECT_EQ(Links(), before);
    }
    // The word that its iterators read, and calls of programs.
    auto live = sensor_->LiveSlots();
    ASSERT_TRUE(live.ok() && live->size() == 1) << live.status();
    const SlotRef ref = live->front().ref;
    auto labelled = sensor_->LabelPresent(ref);
    ASSERT_TRUE(labelled.ok()) << labelled.status();
    EXPECT_EQ(*labelled, 1);
    ExpectRefused(child, ref);
    EXPECT_TRUE(sensor_->FreeSlot(ref).ok());
    EXPECT_TRUE(sensor_->LeftOut().ok());
}

// Where one of them cannot be had, all are loaded, and the earlier set goes.
TEST_F(TakeOverTest, OthersAreLoadedAnew) {
    Child child("sk_anew", [] { return RunProgram("/usr/bin/id"); });
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    ASSERT_NO_FATAL_FAILURE(BindTo(child));
    const std::map<std::string, Linked> before = Links();
    ASSERT_NO_FATAL_FAILURE(SpoilPrograms());
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    ASSERT_TRUE(sensor_->RemoveEarlierSets().ok());
    const std::map<std::string, Linked> after = Links();
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, linked] : after) {
        ASSERT_TRUE(before.contains(name)) << name;
        EXPECT_NE(linked, before.at(name)) << name;
    }
    ASSERT_NO_FATAL_FAILURE(WaitUntilGone(before));
    const SlotRef ref = sensor_->LiveSlots()->front().ref;
    EXPECT_EQ(*sensor_->LabelPresent(ref), 1);
    ExpectRefused(child, ref);
    EXPECT_TRUE(sensor_->FreeSlot(ref).ok());
}

// Between two agents the pinned links judge.
TEST_F(TakeOverTest, WithoutAnAgentTheVerdictStands) {
    Child child("sk_alone", [] { return RunProgram("/usr/bin/id"); });
    ASSERT_NO_FATAL_FAILURE(Make());
    ASSERT_NO_FATAL_FAILURE(BindTo(child));
    ASSERT_EQ(*sensor_->LabelPresent(sensor_->LiveSlots()->front().ref), 1);
    const int refused = sensor_->backend() == Backend::kLsm ? 77 : 128 + SIGKILL;
    sensor_.reset();
    const int status = child.Go();
    EXPECT_EQ(StatusOf(status), refused);
    ASSERT_NO_FATAL_FAILURE(Make());
    EXPECT_EQ(Refusals(), 1);
    EXPECT_TRUE(sensor_->FreeSlot(sensor_->LiveSlots()->front().ref).ok());
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
    auto index = sensor_->PublishPolicy(PolicyCells(sensor_->keys()));
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
    ASSERT_NO_FATAL_FAILURE(BindTo(child));
    ASSERT_TRUE(sensor_->Label(bound_, child.pidfd_.get()).ok());
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
    EXPECT_TRUE(sensor_->FreeSlot(bound_).ok());
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
    ASSERT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
    ASSERT_NO_FATAL_FAILURE(BindTo(child));
    ASSERT_TRUE(sensor_->Label(bound_, child.pidfd_.get()).ok());
    child.Start();
    await_more();
    for (const bool kept : {true, false}) {
        if (!kept) {
            ASSERT_NO_FATAL_FAILURE(SpoilPrograms());
        }
        sensor_.reset();
        await_more();
        ASSERT_NO_FATAL_FAILURE(Make());
        await_more();
        EXPECT_TRUE(sensor_->AttachNetwork(child.cgroup_.get()).ok());
        EXPECT_TRUE(sensor_->RemoveEarlierSets().ok());
        await_more();
    }
    attempts.stop = true;
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_EQ(attempts.through, 0u) << "of " << attempts.refused + attempts.through;
    EXPECT_TRUE(sensor_->FreeSlot(bound_).ok());
    munmap(shared, sizeof(Attempts));
}

}  // namespace
}  // namespace stockade::kernel
