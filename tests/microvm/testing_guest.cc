#include "tests/microvm/testing_guest.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"

namespace stockade::guest {
namespace {

namespace fs = std::filesystem;

// An unprivileged user that nobody is.
constexpr uid_t kQemuUser = 61337;
// No test asserts a time: these only end what hangs, on a machine on which much else runs.
constexpr int kPatienceMs = 300000;

std::string Environment(const char* name) {
    const char* value = getenv(name);
    return value == nullptr ? "" : value;
}

// The boot image of the 6.12 that the vm rung tests on, fetched once into the cache.
std::string KernelPath() {
    const std::string command = Environment("STOCKADE_SOURCE_DIR") + "/vmtests/kernels 6.12";
    FILE* pipe = popen(command.c_str(), "re");
    std::string line;
    char buffer[4096];
    while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) line += buffer;
    if (pipe == nullptr || pclose(pipe) != 0) return "";
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    return words.empty() ? "" : words.back();
}

void MakeTrees(const std::string& top) {
    fs::create_directories(top + "/root/bin");
    fs::create_directories(top + "/root/etc");
    fs::copy_file("/usr/bin/busybox", top + "/root/bin/busybox");
    for (const char* name :
         {"sh",    "cat",    "id",    "ls",   "grep", "date", "hostname", "mknod", "mkfifo", "mkdir", "ln",
          "sleep", "setsid", "touch", "head", "dd",   "wc",   "kill",     "stat",  "chmod",  "env"}) {
        fs::create_symlink("busybox", top + "/root/bin/" + name);
    }
    fs::create_directories(top + "/input");
    ASSERT_TRUE(ReplaceFile(top + "/input/hello", "hello from the host\n", 0644).ok());
}

StatusOr<std::unique_ptr<TestImages>> MakeImages(const std::string& top) {
    auto images = std::make_unique<TestImages>();
    SK_ASSIGN_OR_RETURN(ImageStore store, ImageStore::Create(top + "/store"));
    const std::string kernel = KernelPath();
    if (kernel.empty()) return absl::NotFoundError("vmtests/kernels has no kernel 6.12");
    std::string modules;
    for (const auto& entry : fs::directory_iterator(fs::path(kernel).parent_path() / "lib/modules"))
        modules = entry.path();
    const std::string bin = Environment("STOCKADE_BIN_DIR");
    SK_ASSIGN_OR_RETURN(const Image vmlinux, store.Kernel(kernel));
    SK_ASSIGN_OR_RETURN(const Image initramfs, store.Initramfs(bin + "/stockade-guest-init", modules));
    SK_ASSIGN_OR_RETURN(const Image hostile, store.Initramfs(bin + "/tests/microvm_hostile_init", modules));
    SK_ASSIGN_OR_RETURN(const Image root, store.Root(top + "/root"));
    SK_ASSIGN_OR_RETURN(const Image input, store.Input(top + "/input"));
    SK_ASSIGN_OR_RETURN(images->kernel, store.Open(vmlinux));
    SK_ASSIGN_OR_RETURN(images->initramfs, store.Open(initramfs));
    SK_ASSIGN_OR_RETURN(images->hostile_initramfs, store.Open(hostile));
    SK_ASSIGN_OR_RETURN(images->root, store.Open(root));
    SK_ASSIGN_OR_RETURN(images->input, store.Open(input));
    return images;
}

std::string MakeTop() {
    char name[] = "/tmp/stockade-microvm.XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    return name;
}

std::string Mounts() { return *ReadFile("/proc/self/mountinfo", 16 << 20); }

auto OpenFiles() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); }

// Feeds or drains a pipe from a thread of its own, as the other end of a caller's stdio.
Fd PipeFrom(const std::string& bytes, std::thread* thread) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    *thread = std::thread([bytes, write_end = fds[1]] {
        Fd end(write_end);
        (void)WriteAll(end.get(), bytes);  // EPIPE where the command did not want it
    });
    return Fd(fds[0]);
}
Fd PipeTo(std::string* out, std::thread* thread) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    *thread = std::thread([out, read_end = fds[0]] {
        Fd end(read_end);
        std::string chunk(65536, '\0');
        ssize_t n;
        while ((n = read(end.get(), chunk.data(), chunk.size())) > 0) {
            // A flood is read to its end and not kept.
            if (out->size() < 8 << 20) out->append(chunk, 0, static_cast<size_t>(n));
        }
    });
    return Fd(fds[1]);
}

}  // namespace

std::unique_ptr<TestImages> GuestTest::images_;

void GuestTest::SetUpTestSuite() {
    (void)signal(SIGPIPE, SIG_IGN);
    if (images_ != nullptr) return;
    const std::string top = MakeTop();
    MakeTrees(top);
    auto images = MakeImages(top);
    // The descriptors keep what they have open.
    fs::remove_all(top);
    ASSERT_TRUE(images.ok()) << images.status();
    images_ = *std::move(images);
}

void GuestTest::SetUp() {
    ASSERT_NE(images_, nullptr);
    top_ = MakeTop();
    ASSERT_EQ(mkdir((top_ + "/out").c_str(), 0700), 0);
    out_dir_ = *Fd::Open(top_ + "/out", O_RDONLY | O_DIRECTORY);
    auto home = launch::FindCgroupHome("stockade-microvm-test");
    ASSERT_TRUE(home.ok()) << home.status();
    home_ = home->path;
    auto cgroup = launch::CreateCgroup(*home, absl::StrCat("guest-", getpid(), "-", BootNow()), {});
    ASSERT_TRUE(cgroup.ok()) << cgroup.status();
    cgroup_ = *std::move(cgroup);
}

void GuestTest::TearDown() {
    EXPECT_TRUE(launch::RemoveCgroup(cgroup_.parent, cgroup_.name).ok());
    (void)rmdir(home_.c_str());  // not empty while another test of this kind runs
    fs::remove_all(top_);
}

GuestSpec GuestTest::Spec(const std::string& script) {
    GuestSpec spec;
    spec.force_emulation = true;
    spec.confine.uid = spec.confine.gid = kQemuUser;
    spec.confine.cgroup = cgroup_.dir.get();
    spec.kernel_fd = images_->kernel.get();
    spec.initramfs_fd = images_->initramfs.get();
    spec.root_fd = images_->root.get();
    spec.argv = {"sh", "-c", script};
    spec.env = {"PATH=/bin"};
    spec.out_fd = out_dir_.get();
    spec.timeouts = {.boot_ms = kPatienceMs,
                     .start_ms = kPatienceMs,
                     .run_ms = kPatienceMs,
                     .end_ms = kPatienceMs,
                     .power_off_ms = kPatienceMs};
    return spec;
}

GuestResult GuestTest::Go(const GuestSpec& asked) {
    GuestSpec spec = asked;
    const std::string mounts = Mounts();
    const auto files = OpenFiles();
    std::thread in_thread, out_thread, err_thread;
    Fd in = PipeFrom(stdin_, &in_thread);
    Fd out = PipeTo(&stdout_, &out_thread), err = PipeTo(&stderr_, &err_thread);
    spec.stdin_fd = in.get();
    spec.stdout_fd = out.get();
    spec.stderr_fd = err.get();
    auto result = RunGuest(spec);
    in.Reset();
    out.Reset();
    err.Reset();
    in_thread.join();
    out_thread.join();
    err_thread.join();
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_TRUE(result->gone) << Told(*result);
    ExpectEmptyCgroup();
    EXPECT_EQ(Mounts(), mounts);
    EXPECT_EQ(OpenFiles(), files);
    std::string times;
    const std::pair<const char*, uint64_t> rows[] = {{"ready", result->ready_ns},
                                                     {"started", result->started_ns},
                                                     {"exited", result->exited_ns},
                                                     {"complete", result->complete_ns},
                                                     {"gone", result->gone_ns}};
    for (const auto& [name, at_ns] : rows) {
        if (at_ns != 0) absl::StrAppend(&times, " ", name, " ", (at_ns - result->begin_ns) / 1000000);
    }
    printf("    %s at %s; ms until%s\n", GuestStateName(result->state), StageName(result->stage),
           times.c_str());
    return *std::move(result);
}

void GuestTest::ExpectEmptyCgroup() {
    // The kernel tells of the last task's end a moment after it was waited for.
    const uint64_t deadline = BootNow() + uint64_t{kPatienceMs} * 1000000;
    auto events = Fd::OpenAt(cgroup_.dir, "cgroup.events", O_RDONLY);
    ASSERT_TRUE(events.ok());
    while (true) {
        char text[256] = {};
        ASSERT_GT(pread(events->get(), text, sizeof(text) - 1, 0), 0);
        if (std::string(text).find("populated 0") != std::string::npos) return;
        ASSERT_LT(BootNow(), deadline) << "tasks are left";
        pollfd fd{events->get(), POLLPRI, 0};
        (void)poll(&fd, 1, 1000);
    }
}

pid_t GuestTest::WaitForQemu() {
    auto events = Fd::OpenAt(cgroup_.dir, "cgroup.events", O_RDONLY);
    EXPECT_TRUE(events.ok());
    const uint64_t deadline = BootNow() + uint64_t{kPatienceMs} * 1000000;
    while (BootNow() < deadline) {
        auto procs = Fd::OpenAt(cgroup_.dir, "cgroup.procs", O_RDONLY);
        auto text = procs.ok() ? ReadAll(procs->get(), 4096) : StatusOr<std::string>(procs.status());
        if (text.ok() && !text->empty()) return static_cast<pid_t>(atoi(text->c_str()));
        pollfd fd{events->get(), POLLPRI, 0};
        (void)poll(&fd, 1, 1000);
    }
    return -1;
}

std::string GuestTest::Told(const GuestResult& result) const {
    return absl::StrCat(GuestStateName(result.state), " at ", StageName(result.stage), ": ", result.reason,
                        "\nstdout: ", stdout_.substr(0, 4096), "\nstderr: ", stderr_.substr(0, 4096),
                        "\nqemu: ", result.qemu_errors, "\nconsole: ", result.console_tail);
}

}  // namespace stockade::guest
