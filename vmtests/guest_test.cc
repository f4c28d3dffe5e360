// Whether the guest is what the other tests take it for. Runs in every guest; natively it checks only what holds there too.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace {

constexpr long kCgroup2Magic = 0x63677270;  // include/uapi/linux/magic.h, CGROUP2_SUPER_MAGIC
constexpr long kBpfMagic = 0xcafe4a11;      // ibid., BPF_FS_MAGIC

std::string ReadFile(const char* path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

bool InGuest() { return getenv("STOCKADE_IN_GUEST") != nullptr; }

TEST(Guest, KernelHasBtf) { EXPECT_EQ(access("/sys/kernel/btf/vmlinux", R_OK), 0); }

TEST(Guest, CgroupAndBpfFileSystemsAreMounted) {
    if (!InGuest()) GTEST_SKIP() << "only in a guest";
    struct statfs fs;
    ASSERT_EQ(statfs("/sys/fs/cgroup", &fs), 0);
    EXPECT_EQ(fs.f_type, kCgroup2Magic);
    ASSERT_EQ(statfs("/sys/fs/bpf", &fs), 0);
    EXPECT_EQ(fs.f_type, kBpfMagic);
}

TEST(Guest, LsmOrderIsTheOneAskedFor) {
    if (!InGuest()) GTEST_SKIP() << "only in a guest";
    const std::string have = ReadFile("/sys/kernel/security/lsm");
    const std::string order = getenv("STOCKADE_LSM_ORDER");
    const size_t bpf = have.find("bpf");
    const size_t landlock = have.find("landlock");
    if (order == "nobpf") {
        EXPECT_EQ(bpf, std::string::npos) << have;
        return;
    }
    ASSERT_NE(bpf, std::string::npos) << have;
    // 5.10 has no Landlock.
    if (landlock != std::string::npos) {
        EXPECT_EQ(bpf < landlock, order == "bpf+landlock") << have;
    }
}

TEST(Guest, RootCanBePivotedFrom) {
    if (!InGuest()) GTEST_SKIP() << "only in a guest";
    EXPECT_EQ(system("busybox unshare -m sh -c 'mkdir -p /tmp/n && mount -t tmpfs t /tmp/n && mkdir "
                     "/tmp/n/old && cd /tmp/n && "
                     "/stockade/guest/bin/pivot_root . old'"),
              0);
}

TEST(Guest, PythonOnAnOverlayRootRuns) {
    if (!InGuest()) GTEST_SKIP() << "only in a guest";
    EXPECT_EQ(
        system("mkdir -p /tmp/o && mount -t tmpfs t /tmp/o && mkdir /tmp/o/up /tmp/o/work /tmp/o/root && "
               "mount -t overlay overlay -o lowerdir=/,upperdir=/tmp/o/up,workdir=/tmp/o/work /tmp/o/root && "
               "chroot /tmp/o/root /usr/bin/python3 -c 'import json, ctypes, socket; print(json.dumps(40 + "
               "2))'"),
        0);
}

TEST(Guest, VethAndNftablesWork) {
    if (!InGuest()) GTEST_SKIP() << "only in a guest";
    EXPECT_EQ(system("ip link add va type veth peer name vb && ip link del va"), 0);
    EXPECT_EQ(
        system(
            "nft add table ip t && nft add chain ip t post '{ type nat hook postrouting priority 100; }' && "
            "nft add rule ip t post masquerade && nft delete table ip t"),
        0);
}

}  // namespace
