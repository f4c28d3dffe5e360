#include "userspace/cmd/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class Manager : public ::testing::Test {
  protected:
    void SetUp() override {
        name_ = absl::StrCat("stockade_notify_", getpid());
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        name_.copy(address.sun_path + 1, name_.size());
        listener_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
        ASSERT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size())),
                  0);
        setenv("NOTIFY_SOCKET", absl::StrCat("@", name_).c_str(), 1);
    }
    std::string Next() {
        char text[256];
        const ssize_t n = recv(listener_.get(), text, sizeof(text), 0);
        return n < 0 ? "" : std::string(text, static_cast<size_t>(n));
    }
    std::string name_;
    Fd listener_;
};

TEST_F(Manager, IsToldOfReadinessLifeAndEnd) {
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
    ServiceManager manager = ServiceManager::FromEnvironment();
    EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
    EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr);
    EXPECT_EQ(Next(), "");
    manager.Ready("backend lsm");
    EXPECT_EQ(Next(), "READY=1\nSTATUS=backend lsm");
    manager.Alive(10 * kSecond);
    EXPECT_EQ(Next(), "WATCHDOG=1");
    manager.Alive(10 * kSecond + kSecond / 2);
    EXPECT_EQ(Next(), "") << "half of the interval has not gone by";
    manager.Alive(11 * kSecond);
    EXPECT_EQ(Next(), "WATCHDOG=1");
    manager.Stopping();
    EXPECT_EQ(Next(), "STOPPING=1");
}

TEST_F(Manager, AWatchdogForAnotherProcessIsNotOurs) {
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    ServiceManager manager = ServiceManager::FromEnvironment();
    manager.Alive(10 * kSecond);
    EXPECT_EQ(Next(), "");
    manager.Ready("x");
    EXPECT_EQ(Next(), "READY=1\nSTATUS=x");
}

TEST_F(Manager, NobodyAndNonsenseAreSilent) {
    for (const char* address : {"", "relative", "/", "@"}) {
        setenv("NOTIFY_SOCKET", address, 1);
        setenv("WATCHDOG_USEC", "not a number", 1);
        ServiceManager manager = ServiceManager::FromEnvironment();
        manager.Ready("x");
        manager.Alive(kSecond);
    }
    EXPECT_EQ(Next(), "");
}

}  // namespace
}  // namespace stockade::cmd
