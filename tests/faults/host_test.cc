// What a host lacks, or has too much of: kernel types, a handler that core dumps are piped to.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// In a view of the host without what libbpf takes kernel types from (btf__load_vmlinux_btf), its fallbacks included.
void HideKernelTypes() {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        _exit(98);
    for (const char* dir :
         {"/sys/kernel/btf", "/boot", "/lib/modules", "/usr/lib/modules", "/usr/lib/debug"}) {
        if (access(dir, F_OK) == 0 && mount("tmpfs", dir, "tmpfs", 0, nullptr) != 0) _exit(97);
    }
}

TEST(Host, WithoutKernelTypesNothingIsStarted) {
    Product product;
    const auto run = [&](const std::vector<std::string>& words, const char* tag) {
        return product.Finish(product.StartStockade(words, tag, HideKernelTypes), tag);
    };
    const Ran ran = run({"run", "--policy", "networkless", "--", "/bin/sh", "-c", "echo ran"}, "run");
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("btf"));
    EXPECT_THAT(ran.err, HasSubstr("stockade doctor"));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_TRUE(Until([&] { return product.AgentPid() == 0; }));
    EXPECT_FALSE(std::filesystem::exists(product.pin_dir()));
    EXPECT_EQ(product.LeftOver(), "");
    const Ran doctor = run({"doctor"}, "doctor");
    EXPECT_NE(doctor.status, 0) << doctor.Text();
    EXPECT_THAT(doctor.out, HasSubstr("CONFIG_DEBUG_INFO_BTF"));
}

// A handler that writes down whom it was started for. The setting is the machine's and ours for a moment: a process
// of its own puts it back, also when the test is killed.
class CoreHandler {
  public:
    explicit CoreHandler(Product& product) : product_(product) {
        const std::string before = ReadText(kPattern);
        product.Put("handler", absl::StrCat("#!/bin/sh\necho \"$1\" >>", product.Path("cores"), "\n"), 0755);
        product.Put("cores", "");
        int ends[2];
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        keeper_ = fork();
        if (keeper_ == 0) {
            close(ends[1]);
            setsid();
            char none;
            (void)!read(ends[0], &none, 1);  // until the test has closed its end, or is gone
            _exit(Set(before) ? 0 : 1);
        }
        close(ends[0]);
        held_ = Fd(ends[1]);
        // The kernel takes 127 characters.
        works_ = Set(absl::StrCat("|", product.Path("handler"), " %e"));
    }
    ~CoreHandler() {
        held_.Reset();
        EXPECT_EQ(Wait(keeper_), 0) << kPattern << " is not what it was";
    }
    bool works() const { return works_; }
    std::string Cores() const { return product_.Get("cores"); }

  private:
    static constexpr char kPattern[] = "/proc/sys/kernel/core_pattern";
    static bool Set(const std::string& pattern) {
        std::ofstream file(kPattern);
        file << pattern;
        return file.flush().good();
    }
    Product& product_;
    Fd held_;
    pid_t keeper_ = -1;
    bool works_ = false;
};

// Outside, with the limit that keeps files of dumps away but not handlers.
int CrashOutside(const std::string& program) {
    return Wait(Start(
        {.argv = {program, "-c", "kill -SEGV $$"}, .out = "/dev/null", .err = "/dev/null", .in_child = [] {
             const rlimit none{.rlim_cur = 0, .rlim_max = 0};
             if (setrlimit(RLIMIT_CORE, &none) != 0) _exit(98);
         }}));
}

TEST(Host, ACrashInsideStartsNoHandlerOfCoreDumps) {
    Product product;
    // Names that tell the crashes apart: %e is the command's.
    for (const char* name : {"crash_before", "crash_inside", "crash_after"})
        std::filesystem::copy_file("/bin/sh", product.Path(name));
    CoreHandler handler(product);
    if (!handler.works()) GTEST_SKIP() << "core_pattern cannot be written here";

    EXPECT_EQ(CrashOutside(product.Path("crash_before")), 128 + SIGSEGV);
    ASSERT_TRUE(Until([&] { return handler.Cores() == "crash_before\n"; })) << handler.Cores();

    const std::string policy = product.Put(
        "open.yaml",
        "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: open}\nspec:\n  mode: observe\n"
        "  exec: {allow: [/**]}\n  files: {read: [/**], write: [/**]}\n  network: {allow: []}\n");
    const std::vector<std::string> flags = {"--bind", product.Path("crash_inside") + ":/crash_inside"};
    // The command itself, a child of it, and one that asks for dumps first.
    const Ran ran =
        product.Run(policy,
                    {"/crash_inside", "-c",
                     "/crash_inside -c 'kill -SEGV $$'; echo $?; (ulimit -c unlimited; /crash_inside -c "
                     "'kill -ABRT $$'); echo $?; kill -SEGV $$"},
                    flags);
    EXPECT_EQ(ran.status, 128 + SIGSEGV) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("139\n")) << ran.Text();

    // One that is started after them has written when theirs would have.
    EXPECT_EQ(CrashOutside(product.Path("crash_after")), 128 + SIGSEGV);
    ASSERT_TRUE(Until([&] { return handler.Cores().find("crash_after") != std::string::npos; }))
        << handler.Cores();
    EXPECT_THAT(handler.Cores(), Not(HasSubstr("crash_inside")));
}

}  // namespace
}  // namespace stockade::tests
