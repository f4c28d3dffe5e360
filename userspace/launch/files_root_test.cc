// /in, binds, --rootfs, the terminal, and real tools on top of them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "userspace/base/sha256.h"
#include "userspace/launch/in_copy.h"
#include "userspace/launch/launch_testing.h"
#include "userspace/launch/mounts.h"
#include "userspace/launch/pty.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;

constexpr uid_t kCaller = 4712;

// A directory of the caller's, private to it.
class Files : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_in_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        Put("data", "input\n");
        ASSERT_EQ(chown(dir_.c_str(), kCaller, kCaller), 0);
    }
    void TearDown() override {
        std::error_code ignored;
        std::filesystem::remove_all(dir_, ignored);
    }
    void Put(const std::string& name, const std::string& text, mode_t mode = 0600) {
        std::ofstream(dir_ + "/" + name) << text;
        ASSERT_EQ(chmod((dir_ + "/" + name).c_str(), mode), 0);
        ASSERT_EQ(chown((dir_ + "/" + name).c_str(), kCaller, kCaller), 0);
    }
    bool Idmaps() {
        Fd source(open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        return CloneIdmapped(source.get(), 1, 1, 2, 2, kMountRdonly).ok();
    }
    NativeSpec InSpec(std::vector<std::string> argv) {
        NativeSpec spec = MakeSpec(std::move(argv));
        spec.caller_uid = spec.caller_gid = kCaller;
        spec.in = Fd(open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        return spec;
    }
    std::string dir_;
};

TEST_F(Files, InIsReadOnlyAndTheSandboxesOwn) {
    Put("roots", "root's\n");
    ASSERT_EQ(chown((dir_ + "/roots").c_str(), 0, 0), 0);
    Ran ran = RunSandbox(
        InSpec({"sh", "-c", "cat /in/data; stat -c %u /in/data; id -u; cat /in/roots; echo x > /in/new"}));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    std::vector<std::string> lines;
    std::istringstream stream(ran.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    ASSERT_GE(lines.size(), 4u) << ran.out;
    EXPECT_EQ(lines[0], "input");
    EXPECT_EQ(lines[1], lines[2]);
    // Shown as somebody else's, or left out of the copy.
    EXPECT_THAT(ran.out, testing::AnyOf(HasSubstr("/in/roots: Permission denied"),
                                        HasSubstr("/in/roots: No such file or directory")));
    EXPECT_THAT(ran.out, HasSubstr("Read-only file system"));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/new"));
}

TEST_F(Files, NoLeaseStallsTheHost) {
    Ran ran = RunSandbox(InSpec({"probe", "lease", "/in/data"}));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "lease EPERM\n");
    // The control: its owner may lease it.
    Fd own(open((dir_ + "/data").c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(fcntl(own.get(), F_SETLEASE, F_RDLCK), 0) << strerror(errno);
}

TEST_F(Files, InSaysHowItWasShown) {
    auto sandbox = NativeSandbox::Create(InSpec({"probe"}));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    EXPECT_EQ((*sandbox)->in_kind(), Idmaps() ? InKind::kIdmapped : InKind::kCopied);
}

TEST_F(Files, CopyWhereIdmappingFails) {
    // procfs cannot be idmapped on any kernel; the copy of a small part of it is cut by its bound.
    Fd proc(open("/proc/sys/net", O_PATH | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(absl::IsUnimplemented(CloneIdmapped(proc.get(), 1, 1, 2, 2, kMountRdonly).status()));
    ASSERT_EQ(symlink("data", (dir_ + "/link").c_str()), 0);
    ASSERT_EQ(mkfifo((dir_ + "/fifo").c_str(), 0666), 0);
    Put("alien", "x");
    ASSERT_EQ(chown((dir_ + "/alien").c_str(), 0, 0), 0);
    NativeSpec spec = InSpec({"probe"});
    auto copy = NewTmpfs(1 << 20, 100, "0700", spec.uid, spec.gid, 0);
    ASSERT_TRUE(copy.ok()) << copy.status();
    Status status = CopyIn(spec.in.get(), copy->get(), spec);
    ASSERT_TRUE(status.ok()) << status;
    std::string base = absl::StrCat("/proc/self/fd/", copy->get(), "/");
    EXPECT_EQ(*ReadFile(base + "data", 100), "input\n");
    struct stat st;
    ASSERT_EQ(stat((base + "data").c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, spec.uid);
    EXPECT_TRUE(std::filesystem::is_symlink(base + "link"));
    EXPECT_FALSE(std::filesystem::exists(base + "fifo"));
    EXPECT_FALSE(std::filesystem::exists(base + "alien"));
    spec.in_copy_max_bytes = 3;
    auto small = NewTmpfs(1 << 20, 100, "0700", spec.uid, spec.gid, 0);
    EXPECT_TRUE(absl::IsResourceExhausted(CopyIn(spec.in.get(), small->get(), spec)));
    (void)RemoveCgroup(spec.cgroup.parent, spec.cgroup.name);
}

// As where user.max_user_namespaces is 0: a task whose root is that of no mount namespace may make none.
TEST_F(Files, CopyWhereThereAreNoUserNamespaces) {
    const Fd source(open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) {
        if (chroot(dir_.c_str()) != 0) _exit(2);
        _exit(absl::IsUnimplemented(CloneIdmapped(source.get(), 1, 1, 2, 2, kMountRdonly).status()) ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

TEST_F(Files, BindsAreReadOnlyUnlessAsked) {
    NativeSpec spec = InSpec({"sh", "-c", "cat /opt/x/data 2>&1; echo new > /srv/made; echo no > /opt/x/no"});
    ASSERT_EQ(chmod((dir_ + "/data").c_str(), 0644), 0);
    ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
    spec.binds.push_back({Fd(open(dir_.c_str(), O_PATH | O_CLOEXEC)), "/opt/x", false});
    spec.binds.push_back({Fd(open(dir_.c_str(), O_PATH | O_CLOEXEC)), "/srv", true});
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_THAT(ran.out, HasSubstr("input\n"));
    EXPECT_THAT(ran.out, HasSubstr("Read-only file system"));
    struct stat st;
    if (Idmaps()) {
        ASSERT_EQ(stat((dir_ + "/made").c_str(), &st), 0) << ran.out;
        EXPECT_EQ(st.st_uid, kCaller);
    } else {
        EXPECT_THAT(ran.out, HasSubstr("cannot create /srv/made: Permission denied"));
    }
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/no"));
}

TEST_F(Files, NoSetIdProgramIsLeftInAWritableBind) {
    NativeSpec spec = InSpec({"probe", "setids", "/srv"});
    spec.binds.push_back({Fd(open(dir_.c_str(), O_PATH | O_CLOEXEC)), "/srv", true});
    // A profile that allows all: what holds is the floor.
    auto compiled = CompileSeccomp(0, R"({"defaultAction": "SCMP_ACT_ALLOW"})", true);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    spec.seccomp = *compiled;
    Ran ran = RunSandbox(std::move(spec));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_THAT(ran.out, HasSubstr("chmod EPERM\nchmod_upper EPERM\nfchmod EPERM\n"));
    EXPECT_THAT(ran.out, HasSubstr("openat EPERM\ntmpfile EPERM\nmknodat EPERM\nopenat2 ENOSYS\n"));
    if (Idmaps()) {  // elsewhere nothing of the bind is the sandbox's
        EXPECT_THAT(ran.out, HasSubstr("plain ok\n"));
        EXPECT_THAT(ran.out, HasSubstr("read ok\ngroup_write ok\n"));
    }
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
        struct stat st;
        ASSERT_EQ(lstat(entry.path().c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & (S_ISUID | S_ISGID), 0u) << entry.path();
    }
}

TEST_F(Files, RootfsReplacesTheHosts) {
    for (const char* name : {"bin", "etc", "data.d", "proc"})
        std::filesystem::create_directory(dir_ + "/" + name);
    std::filesystem::create_symlink("bin", dir_ + "/sbin");
    Put("etc/passwd", "none\n", 0644);
    NativeSpec spec = MakeSpec({"probe", "ls", "/", "open", "/etc/passwd", "open", "/usr/bin/env"});
    spec.rootfs = Fd(open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_THAT(ran.out, HasSubstr("data.d"));
    EXPECT_THAT(ran.out, HasSubstr("sbin"));
    EXPECT_THAT(ran.out, HasSubstr("open ok\nopen ENOENT\n"));
}

TEST_F(Files, LinksOfARootfsLeadNowhereOnTheHost) {
    std::filesystem::create_directories(dir_ + "/image/bin");
    std::filesystem::create_directory(dir_ + "/host");
    Put("host/resolv.conf", "the host's\n");
    std::filesystem::create_symlink(dir_ + "/host", dir_ + "/image/etc");
    std::filesystem::create_symlink("bin/etc", dir_ + "/image/opt");
    std::filesystem::create_directory(dir_ + "/image/bin/etc");
    auto with_bind = [&](const std::string& target) {
        NativeSpec spec = InSpec({"probe", "ls", "/opt"});
        spec.rootfs = Fd(open((dir_ + "/image").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        spec.binds.push_back({Fd(open((dir_ + "/data").c_str(), O_PATH | O_CLOEXEC)), target, false});
        return spec;
    };
    for (const char* target : {"/etc/resolv.conf", "/etc/made", "/etc/sub/made"}) {
        EXPECT_FALSE(RunSandbox(with_bind(target)).status.ok()) << target;
    }
    EXPECT_EQ(*ReadFile(dir_ + "/host/resolv.conf", 100), "the host's\n");
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/host/made"));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/host/sub"));
    // One that stays inside is followed, as the sandbox itself would.
    Put("image/bin/etc/x", "", 0644);
    Ran ran = RunSandbox(with_bind("/opt/x"));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_THAT(ran.out, HasSubstr("ls /opt: x\n"));
}

TEST_F(Files, OwnTerminalWithItsSize) {
    NativeSpec spec = MakeSpec({"probe", "tty", "size", "devtty", "escapes"});
    spec.tty = true;
    spec.tty_rows = 33;
    spec.tty_columns = 111;
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Release().ok());
    Collector out;
    PtyRelay relay(-1, out.fd(), (*sandbox)->master());
    ASSERT_TRUE(relay.Run((*sandbox)->pidfd()).ok());
    EXPECT_EQ(*(*sandbox)->Wait(), 0);
    std::string text = out.Text();
    EXPECT_THAT(text, HasSubstr("tty /dev/pts/0\r\nsize 33 111\r\ndevtty ok\r\n"));
    EXPECT_THAT(text, HasSubstr("ioctl_tiocsti EPERM"));
}

TEST_F(Files, TerminalCarriesInputAndInterrupt) {
    NativeSpec spec = MakeSpec({"sh", "-c", "read x; echo got $x; exec cat"});
    spec.tty = true;
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Release().ok());
    int in[2], out[2];
    ASSERT_EQ(pipe2(in, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
    Fd in_read(in[0]), in_write(in[1]), out_read(out[0]), out_write(out[1]);
    PtyRelay relay(in_read.get(), out_write.get(), (*sandbox)->master());
    std::thread worker([&] { (void)relay.Run((*sandbox)->pidfd()); });
    ASSERT_TRUE(WriteAll(in_write.get(), "word\n").ok());
    std::string text;
    char buffer[256];
    while (text.find("got word") == std::string::npos) {
        ssize_t n = read(out_read.get(), buffer, sizeof(buffer));
        ASSERT_GT(n, 0) << text;
        text.append(buffer, static_cast<size_t>(n));
    }
    ASSERT_TRUE(WriteAll(in_write.get(), "\x03").ok());
    EXPECT_EQ(*(*sandbox)->Wait(), 128 + SIGINT);
    worker.join();
}

TEST_F(Files, CompilerWorks) {
    if (access("/usr/bin/gcc", X_OK) != 0) GTEST_SKIP() << "gcc is not installed";
    Put("a.c", "#include <stdio.h>\nint main(void) { puts(\"built\"); return 5; }\n", 0644);
    Ran ran = RunSandbox(InSpec({"sh", "-c", "gcc -O1 -o /tmp/a /in/a.c && /tmp/a"}));
    EXPECT_EQ(ran.out, "built\n");
    EXPECT_EQ(ran.exit_status, 5);
}

TEST_F(Files, NodeAndNpmWork) {
    if (access("/usr/bin/npm", X_OK) != 0) GTEST_SKIP() << "npm is not installed";
    Put("package.json",
        R"({"name": "x", "version": "1.0.0", "scripts": {"test": "node -e 'console.log(6*7)'"}})", 0644);
    NativeSpec spec = InSpec({"npm", "test", "--silent"});
    spec.cwd = "/in";
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_EQ(ran.exit_status, 0);
}

// What was looked at is what is shown, and nothing beside it.
TEST_F(Files, OnlyListedFilesAreShownAndOnlyAsTheyWere) {
    Put("secret", "not declared\n");
    ASSERT_TRUE(std::filesystem::create_directories(dir_ + "/deep/a"));
    Put("deep/a/file", "deep\n");
    Put("deep/a/other", "other\n");
    const auto digest = [](absl::string_view text) {
        const auto bytes = Sha256(text);
        return std::string(bytes.begin(), bytes.end());
    };
    const auto run = [&](const std::vector<InFile>& files) {
        NativeSpec spec = InSpec({"sh", "-c", "cd /in && find . -type f | sort && cat deep/a/file && (echo x >data) 2>/dev/null || echo read-only"});
        spec.in_listed = true;
        spec.in_files = files;
        return RunSandbox(std::move(spec));
    };
    const InFile data{.path = "data", .bytes = 6, .sha256 = digest("input\n")}, deep{.path = "deep/a/file", .bytes = 5, .sha256 = digest("deep\n")};
    const Ran ran = run({data, deep});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "./data\n./deep/a/file\ndeep\nread-only\n");
    for (const InFile& changed : {InFile{.path = "data", .bytes = 6, .sha256 = digest("Input\n")}, InFile{.path = "data", .bytes = 5, .sha256 = digest("input")}, InFile{.path = "data", .bytes = 7, .sha256 = digest("input\n")},
                                  InFile{.path = "absent", .bytes = 0, .sha256 = digest("")}, InFile{.path = "deep", .bytes = 0, .sha256 = digest("")}, InFile{.path = "../data", .bytes = 6, .sha256 = digest("input\n")}}) {
        const Ran refused = run({changed});
        EXPECT_FALSE(refused.status.ok()) << changed.path;
    }
    ASSERT_EQ(symlink("data", (dir_ + "/link").c_str()), 0);
    EXPECT_FALSE(run({InFile{.path = "link", .bytes = 6, .sha256 = digest("input\n")}}).status.ok());
}

}  // namespace
}  // namespace stockade::launch
