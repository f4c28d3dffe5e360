#include "userspace/cmd/store_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "userspace/base/clock.h"

namespace stockade::cmd {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

bool Until(const std::function<bool()>& done) {
    const uint64_t end = BootNow() + 30 * kSecond;
    while (!done()) {
        if (BootNow() > end) return false;
        usleep(2000);  // between two looks
    }
    return true;
}

// A disk whose writes hang until it is told to go on.
class Disk {
  public:
    ssize_t Write(int fd, const void* data, size_t size) {
        std::unique_lock lock(mutex_);
        if (hangs_) waited_ = true;
        go_.wait(lock, [this] { return !hangs_; });
        return write(fd, data, size);
    }
    void Hang(bool hangs) {
        {
            std::lock_guard lock(mutex_);
            hangs_ = hangs;
        }
        go_.notify_all();
    }
    bool waited() {
        std::lock_guard lock(mutex_);
        return waited_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable go_;
    bool hangs_ = false;
    bool waited_ = false;
};

TEST(StoreWatch, WhoAsksWaitsForNoDisk) {
    char name[] = "/tmp/stockade_watch_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    const std::string dir = name;
    Disk disk;
    pipeline::EventStore::Options options;
    options.key_path = dir + "/node.key";
    options.spool.dir = dir + "/spool";
    options.spool.node = "n";
    options.spool.write = [&](int fd, const void* data, size_t size) { return disk.Write(fd, data, size); };
    // Nobody reads it: what is looked at is the writing.
    options.readers = {{"nobody", []() -> StatusOr<std::unique_ptr<exporters::SpooledExporter>> {
                            return absl::UnavailableError("no peer");
                        }}};
    auto store = pipeline::EventStore::Open(std::move(options));
    store->Start({});
    uint64_t pass = 0;
    v1::Event event;
    event.set_id("x");
    event.set_kind("agent");
    event.mutable_agent();
    const auto say = [&] {
        store->Take(event);
        store->EndPass(++pass);
        return true;
    };
    {
        StoreWatch watch(*store);
        EXPECT_TRUE(Until([&] { return say() && watch.latest()->counters.stored > 0; }));
        EXPECT_TRUE(watch.latest()->health.ok()) << watch.latest()->health;

        disk.Hang(true);
        ASSERT_TRUE(Until([&] { return say() && disk.waited(); }));
        // That is what it is for: the store itself waits.
        auto asked = std::async(std::launch::async, [&] { return store->counters().stored; });
        EXPECT_EQ(asked.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
        const uint64_t before = BootNow();
        for (int i = 0; i < 1000; ++i) (void)watch.latest();
        EXPECT_LT(BootNow() - before, kSecond);
        // It shows: nothing was looked at since.
        EXPECT_TRUE(Until([&] { return BootNow() - watch.latest()->boot_ns > 2 * kSecond; }));

        disk.Hang(false);
        EXPECT_TRUE(Until([&] { return BootNow() - watch.latest()->boot_ns < kSecond; }));
        (void)asked.get();
    }
    store.reset();
    std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace stockade::cmd
