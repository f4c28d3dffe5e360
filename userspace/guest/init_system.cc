#include "userspace/guest/init_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

constexpr uint64_t kPortsTimeoutNs = 10'000'000'000;
constexpr long kPortsPauseNs = 1'000'000;

Status Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
             const std::string& data = "") {
    if (mount(source, target.c_str(), type, flags, data.empty() ? nullptr : data.c_str()) != 0) {
        return ErrnoStatus(errno, absl::StrCat("mount ", type == nullptr ? "" : type, " at ", target));
    }
    return absl::OkStatus();
}

std::vector<std::string> NamesIn(const std::string& path) {
    std::vector<std::string> names;
    if (DIR* dir = opendir(path.c_str()); dir != nullptr) {
        while (dirent* entry = readdir(dir)) {
            if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
        }
        closedir(dir);
    }
    std::sort(names.begin(), names.end());
    return names;
}

// "vport0p1" of the port that has this name; empty while there is none.
std::string NodeOf(Port port) {
    for (const std::string& node : NamesIn("/sys/class/virtio-ports")) {
        auto name = ReadFile(absl::StrCat("/sys/class/virtio-ports/", node, "/name"), 256);
        if (name.ok() && absl::StripSuffix(*name, "\n") == PortName(port)) return node;
    }
    return "";
}

StatusOr<Fd> OpenPort(Port port, uint64_t deadline_ns) {
    while (true) {
        const std::string node = NodeOf(port);
        if (!node.empty()) {
            auto fd = Fd::Open(absl::StrCat("/dev/", node), O_RDWR);
            // The entry of sysfs is there a moment before the node of devtmpfs.
            if (fd.ok()) return fd;
        }
        if (BootNow() > deadline_ns)
            return absl::DeadlineExceededError(absl::StrCat("there is no port ", PortName(port)));
        // sysfs tells nobody of what it gets, and this is init: there is nothing else to do.
        const timespec pause{.tv_sec = 0, .tv_nsec = kPortsPauseNs};
        (void)nanosleep(&pause, nullptr);
    }
}

struct Device {
    const char* name;
    unsigned major, minor;
};
// No node of a disk or port among them, and no capability to make one.
constexpr Device kDevices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                               {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

Status MakeDev(const std::string& dev) {
    SK_RETURN_IF_ERROR(Mount("dev", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=64"));
    for (const Device& device : kDevices) {
        const std::string path = absl::StrCat(dev, "/", device.name);
        if (mknod(path.c_str(), S_IFCHR | 0666, makedev(device.major, device.minor)) != 0 ||
            chmod(path.c_str(), 0666) != 0) {
            return ErrnoStatus(errno, absl::StrCat("make ", path));
        }
    }
    const std::pair<const char*, const char*> links[] = {{"fd", "/proc/self/fd"},
                                                         {"stdin", "/proc/self/fd/0"},
                                                         {"stdout", "/proc/self/fd/1"},
                                                         {"stderr", "/proc/self/fd/2"}};
    for (auto [name, target] : links) {
        if (symlink(target, absl::StrCat(dev, "/", name).c_str()) != 0)
            return ErrnoStatus(errno, "make a link in /dev");
    }
    if (mkdir(absl::StrCat(dev, "/shm").c_str(), 0755) != 0) return ErrnoStatus(errno, "make /dev/shm");
    return absl::OkStatus();
}

}  // namespace

Status MountBase() {
    for (const char* dir : {"/proc", "/sys", "/dev", kRoot}) {
        if (mkdir(dir, 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("make ", dir));
    }
    SK_RETURN_IF_ERROR(Mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
    SK_RETURN_IF_ERROR(Mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC));
    return Mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID | MS_NOEXEC);
}

Status LoadModules() {
    for (const std::string& name : NamesIn("/modules")) {
        SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(absl::StrCat("/modules/", name), O_RDONLY));
        if (syscall(SYS_finit_module, file.get(), "", 0) != 0 && errno != EEXIST) {
            return ErrnoStatus(errno, absl::StrCat("load module ", name));
        }
    }
    return absl::OkStatus();
}

StatusOr<GuestPorts> OpenPorts() {
    GuestPorts ports;
    const uint64_t deadline_ns = BootNow() + kPortsTimeoutNs;
    for (size_t i = 0; i < kPorts; ++i) {
        const auto port = static_cast<Port>(i);
        SK_ASSIGN_OR_RETURN(Fd fd, OpenPort(port, deadline_ns));
        ports[i] = GuestPort(port, std::move(fd));
    }
    return ports;
}

Status SetClockAndEntropy(const RunOrder& run) {
    const timespec now{.tv_sec = static_cast<time_t>(run.wall_ns() / 1'000'000'000),
                       .tv_nsec = static_cast<long>(run.wall_ns() % 1'000'000'000)};
    if (clock_settime(CLOCK_REALTIME, &now) != 0) return ErrnoStatus(errno, "set the clock");
    if (run.entropy().size() < 32 || run.entropy().size() > 512)
        return absl::InvalidArgumentError("32 to 512 bytes of entropy");
    std::vector<char> room(sizeof(rand_pool_info) + run.entropy().size());
    auto* pool = reinterpret_cast<rand_pool_info*>(room.data());
    pool->entropy_count = static_cast<int>(run.entropy().size() * 8);
    pool->buf_size = static_cast<int>(run.entropy().size());
    std::copy(run.entropy().begin(), run.entropy().end(), reinterpret_cast<char*>(pool->buf));
    SK_ASSIGN_OR_RETURN(Fd random, Fd::Open("/dev/random", O_RDWR));
    if (ioctl(random.get(), RNDADDENTROPY, pool) != 0) return ErrnoStatus(errno, "add entropy");
    // What was given out before is not taken further: a key made of the new bytes is.
    if (ioctl(random.get(), RNDRESEEDCRNG) != 0) return ErrnoStatus(errno, "reseed the random generator");
    return absl::OkStatus();
}

Status PrepareRoot(const RunOrder& run) {
    const std::string root = kRoot;
    SK_RETURN_IF_ERROR(Mount("/dev/vda", root, "squashfs", MS_RDONLY | MS_NOSUID | MS_NODEV));
    // Init and whatever else is not the command's own is not to be seen there.
    SK_RETURN_IF_ERROR(Mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2"));
    SK_RETURN_IF_ERROR(MakeDev(root + "/dev"));
    const std::string owner = absl::StrCat(",uid=", run.uid(), ",gid=", run.gid());
    // An inode a page of data: names without bytes are bounded as well.
    const std::string tmp =
        absl::StrCat("mode=1777,size=", run.tmp_bytes(), ",nr_inodes=", run.tmp_bytes() / 4096 + 64);
    SK_RETURN_IF_ERROR(Mount("shm", root + "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, tmp));
    SK_RETURN_IF_ERROR(Mount("tmp", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, tmp));
    SK_RETURN_IF_ERROR(
        Mount("out", root + "/out", "tmpfs", MS_NOSUID | MS_NODEV,
              absl::StrCat("mode=755,size=", run.out_bytes(), ",nr_inodes=", run.out_entries() + 1, owner)));
    if (run.has_input()) {
        SK_RETURN_IF_ERROR(Mount("/dev/vdb", root + "/in", "squashfs", MS_RDONLY | MS_NOSUID | MS_NODEV));
    }
    return absl::OkStatus();
}

void PowerOff() {
    // Returns only where it is not allowed, and init may.
    (void)reboot(RB_POWER_OFF);
    _exit(1);
}

}  // namespace stockade::guest
