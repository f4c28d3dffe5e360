#include "userspace/launch/bind_check.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "userspace/launch/mounts.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;

TEST(BindCheck, RefusesWhatOpensTheHost) {
    for (const char* path :
         {"/", "/proc", "/proc/self", "/sys", "/dev", "/dev/shm", "/etc", "/etc/ssl", "/root", "/home",
          "/run", "/var", "/var/run", "/proc/self/root", "/usr/../etc"}) {
        Status status = OpenBindSource(path).status();
        EXPECT_TRUE(absl::IsPermissionDenied(status)) << path << ": " << status;
    }
}

TEST(BindCheck, AllowsADirectoryOfWork) {
    char name[] = "/tmp/stockade_bind_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    EXPECT_TRUE(OpenBindSource(name).ok()) << OpenBindSource(name).status();
    EXPECT_TRUE(OpenBindSource("/usr/share").ok());
    Status denied = OpenBindSource(name, [&](const std::string& path) { return path == name; }).status();
    EXPECT_THAT(std::string(denied.message()), HasSubstr("the policy denies it"));
    // A link is judged by what it leads to.
    std::string link = std::string(name) + "/link";
    ASSERT_EQ(symlink("/etc", link.c_str()), 0);
    EXPECT_TRUE(absl::IsPermissionDenied(OpenBindSource(link).status()));
    std::filesystem::remove_all(name);
}

TEST(BindCheck, AnotherNameOfAHomeIsAHome) {
    Fd home(open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto alias = CloneMount(home.get(), false, kMountRdonly);
    ASSERT_TRUE(alias.ok()) << alias.status();
    // Its path says "/": a bind elsewhere has whatever name its maker chose.
    EXPECT_TRUE(absl::IsPermissionDenied(CheckBindSource(alias->get())));
}

TEST(BindCheck, TheAgentsOwnDirectoriesAreRefused) {
    char name[] = "/tmp/stockade_bind_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    const std::string dir = name, run = dir + "/run";
    std::filesystem::create_directories(run + "/sandboxes");
    for (const std::string& path : {run, run + "/sandboxes", dir}) {
        EXPECT_TRUE(OpenBindSource(path).ok()) << path;
        EXPECT_TRUE(absl::IsPermissionDenied(OpenBindSource(path, nullptr, {run}).status())) << path;
    }
    std::filesystem::create_directory(dir + "/beside");
    EXPECT_TRUE(OpenBindSource(dir + "/beside", nullptr, {run}).ok());
    std::filesystem::remove_all(name);
}

TEST(BindCheck, FileSystemsOfTheKernelAreRefusedByAnyName) {
    for (const char* type : {"bpf", "proc", "cgroup2"}) {
        auto mount = NewMount(type, {}, 0);
        ASSERT_TRUE(mount.ok()) << mount.status();
        char name[] = "/tmp/stockade_bind_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        ASSERT_EQ(SysMoveMount(mount->get(), "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH), 0);
        Status status = OpenBindSource(name).status();
        EXPECT_THAT(std::string(status.message()), HasSubstr("file system of the kernel's")) << type;
        EXPECT_EQ(umount2(name, MNT_DETACH), 0);
        rmdir(name);
    }
}

TEST(BindCheck, DevicesAndFifosAreNoSource) {
    char name[] = "/tmp/stockade_bind_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    std::string fifo = std::string(name) + "/fifo";
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_TRUE(absl::IsPermissionDenied(OpenBindSource(fifo).status()));
    std::filesystem::remove_all(name);
}

}  // namespace
}  // namespace stockade::launch
