// The agent with the rights that its unit gives it, read from the unit: sandboxes of every kind under them, and an upgrade while one runs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/tools/product.h"
#include "userspace/base/clock.h"

namespace stockade::testing_service {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::Ran;
using tests::Until;

constexpr uid_t kMember = 61001;
constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: worker}\nspec:\n"
    "  exec: {allow: [/usr/**, /bin/**]}\n  files: {read: [/usr/**, /bin/**, /lib/**, /dev/**, /in/**], "
    "write: [/dev/null, /tmp/**, /out/**]}\n"
    "  network: {allow: [{cidr: 10.0.0.0/8, ports: [443]}, {name: allowed.example, ports: [443]}]}\n"
    "  dns: {mode: allowlist, resolvers: [127.0.0.53], allow: [allowed.example]}\n";

class Confined : public testing::Test {
  protected:
    Confined() {
        const group* games = getgrnam("games");
        gid_ = games == nullptr ? 0 : games->gr_gid;
        product_.Configure(
            absl::StrCat("agent_wait_seconds: 60\nmetrics: {listen: off}\napi: {group: games, policies: "
                         "[networkless]}\n"));
        policy_ = product_.Put("worker.yaml", kPolicy);
        for (const absl::string_view line :
             absl::StrSplit(tests::ReadText(tests::SourcePath("deploy/systemd/stockaded.service")), '\n')) {
            absl::string_view value = line;
            if (absl::ConsumePrefix(&value, "CapabilityBoundingSet="))
                bounding_ = absl::StrSplit(absl::AsciiStrToLower(value), ' ', absl::SkipEmpty());
            no_new_privileges_ = no_new_privileges_ || line == "NoNewPrivileges=yes";
        }
    }
    ~Confined() override {
        if (agent_ > 0) kill(agent_, SIGKILL), (void)tests::Wait(agent_);
    }
    // As systemd does it: nothing is inherited or ambient, the bounding set is that of the unit.
    void StartAgent(const std::string& binary, const std::vector<std::string>& bounding) {
        std::vector<std::string> names = {"-all"};
        for (const std::string& name : bounding)
            names.push_back(absl::StrCat("+", absl::StripPrefix(name, "cap_")));
        const std::string log = absl::StrCat("agent", ++agents_, ".err");
        agent_ = tests::Start(
            {.argv = {"/usr/bin/setpriv", "--bounding-set", absl::StrJoin(names, ","), "--inh-caps", "-all",
                      "--ambient-caps", "-all", "--no-new-privs", binary, "--config", product_.config()},
             .out = product_.Path("agent.out"),
             .err = product_.Path(log),
             .in_child = [] { umask(0077); }});
        ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get(log), "listening at"); }))
            << product_.Get(log);
    }
    void StopAgent() {
        ASSERT_EQ(kill(agent_, SIGTERM), 0);
        EXPECT_EQ(tests::Wait(agent_), 0);
        agent_ = 0;
    }
    static std::string Status(pid_t pid, const std::string& key) {
        for (const absl::string_view line :
             absl::StrSplit(tests::ReadText(absl::StrCat("/proc/", pid, "/status")), '\n')) {
            if (absl::StartsWith(line, key + ":"))
                return std::string(absl::StripAsciiWhitespace(line.substr(key.size() + 1)));
        }
        return "";
    }
    static std::string Mask(const std::vector<std::string>& names) {
        uint64_t mask = 0;
        for (const std::string& name : names) {
            cap_value_t value = 0;
            EXPECT_EQ(cap_from_name(name.c_str(), &value), 0) << name;
            mask |= uint64_t{1} << value;
        }
        // A machine may keep some from everybody.
        mask &= strtoull(Status(getpid(), "CapBnd").c_str(), nullptr, 16);
        char text[17];
        snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(mask));
        return text;
    }
    // The only child of the agent that is not a shim's.
    pid_t Helper() const {
        const std::string children =
            tests::ReadText(absl::StrCat("/proc/", agent_, "/task/", agent_, "/children"));
        return static_cast<pid_t>(strtol(children.c_str(), nullptr, 10));
    }
    Ran As(uid_t uid, const std::vector<std::string>& words) {
        const gid_t group = gid_;
        return product_.Finish(
            product_.StartStockade(words, "as",
                                   [=] {
                                       if (setgroups(1, &group) != 0 || setgid(uid) != 0 || setuid(uid) != 0)
                                           _exit(98);
                                   }),
            "as");
    }
    tests::Product product_;
    std::string policy_;
    gid_t gid_ = 0;
    std::vector<std::string> bounding_;
    bool no_new_privileges_ = false;
    pid_t agent_ = 0;
    int agents_ = 0;
};

TEST_F(Confined, SandboxesOfEveryKindRunUnderTheUnitsCapabilities) {
    ASSERT_GT(bounding_.size(), 6u);
    ASSERT_TRUE(no_new_privileges_);
    StartAgent(tests::BinPath("stockaded"), bounding_);
    // The agent has what it says; the helper has the unit's, and no more.
    const std::string six = Mask(
        {"cap_bpf", "cap_perfmon", "cap_net_admin", "cap_sys_ptrace", "cap_kill", "cap_dac_read_search"});
    EXPECT_EQ(Status(agent_, "CapBnd"), six);
    EXPECT_EQ(Status(agent_, "CapEff"), six);
    const pid_t helper = Helper();
    ASSERT_GT(helper, 0);
    EXPECT_EQ(Status(helper, "CapBnd"), Mask(bounding_));
    EXPECT_EQ(Status(helper, "NoNewPrivs"), "1");

    Ran ran = product_.Run("networkless", {"/bin/sh", "-c", "echo hello; cat /etc/shadow; echo after"});
    EXPECT_THAT(ran.out, HasSubstr("hello\n")) << ran.Text();
    EXPECT_FALSE(ran.Refusals().empty());
    // A way out, names, files in and out, another's uid, limits, a terminal-less pipe.
    product_.Put("in/note", "from outside");
    std::filesystem::create_directory(product_.Path("out"));
    ran = product_.Run(
        policy_,
        {"/bin/sh", "-c",
         "cat /in/note >/out/copy; cat /proc/net/dev; getent hosts elsewhere.example || echo none"},
        {"--in", product_.Path("in"), "--out", product_.Path("out")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(product_.Get("out/copy"), "from outside");
    EXPECT_THAT(ran.out, HasSubstr("none"));
    EXPECT_THAT(ran.out, testing::ContainsRegex("eth0|veth|sk")) << "no way out was made";
    ran = As(kMember, {"run", "--policy", "networkless", "--", "/bin/sh", "-c", "echo member"});
    EXPECT_EQ(ran.out, "member\n") << ran.Text();
    ran = product_.Run("networkless", {"/bin/sleep", "1000"}, {"--timeout", "300ms"});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    // An end by hand, a freeze before it.
    const pid_t long_run = product_.StartRun("networkless", {"/bin/sh", "-c", "echo up; sleep 1000"}, "long");
    ASSERT_TRUE(Until([&] { return product_.Get("long.out") == "up\n"; })) << product_.Get("long.err");
    const std::string ps = product_.Stockade({"ps", "-o", "json"}).out, id = ps.substr(ps.find("sbx_"), 30);
    for (const char* action : {"freeze", "thaw", "isolate", "release", "kill"})
        EXPECT_EQ(product_.Stockade({action, id}).status, 0) << action;
    EXPECT_EQ(product_.Finish(long_run, "long").status, 137);
    StopAgent();
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

// The control: what the set lacks is missed, so it is in force.
TEST_F(Confined, WithoutOneOfThemNoSandboxIsMade) {
    std::vector<std::string> fewer = bounding_;
    std::erase(fewer, "cap_sys_chroot");
    std::erase(fewer, "cap_sys_admin");
    ASSERT_EQ(fewer.size(), bounding_.size() - 2);
    StartAgent(tests::BinPath("stockaded"), fewer);
    const Ran ran = product_.Run("networkless", {"/bin/true"});
    EXPECT_EQ(ran.status, 125) << ran.Text();
    StopAgent();
}

// As dpkg does it: the file is replaced by another version's, then the agent is restarted. A sandbox attacks all the while.
TEST_F(Confined, AnUpgradeUnderARunningAgentLetsNothingThrough) {
    const std::string binary = product_.Path("bin/stockaded");
    std::filesystem::create_directory(product_.Path("bin"));
    std::filesystem::copy_file(tests::BinPath("stockaded"), binary);
    StartAgent(binary, bounding_);
    product_.Put("in/ready", "");
    const pid_t attacker =
        product_.StartRun(policy_,
                          {"/bin/sh", "-c",
                           "n=0; while ! [ -e /in/stop ]; do { echo x >/dev/shm/x; } 2>/dev/null && echo "
                           "EFFECT; cat /etc/shadow 2>/dev/null && echo EFFECT; "
                           "n=$((n+1)); echo attempt $n; sleep 0.02; done"},
                          "attacker", {"--in", product_.Path("in")});
    const auto attempts = [&] {
        const std::string out = product_.Get("attacker.out");
        return std::count(out.begin(), out.end(), '\n');
    };
    const auto goes_on = [&] {
        const auto before = attempts();
        return Until([&] { return attempts() > before; });
    };
    ASSERT_TRUE(goes_on()) << product_.Get("attacker.err");
    // The client of the run would start an agent of its own where it finds none.
    ASSERT_EQ(kill(attacker, SIGSTOP), 0);
    const auto version = [&] { return product_.Stockade({"status", "-o", "json"}).out; };
    EXPECT_THAT(version(), Not(HasSubstr("-next\"")));
    std::filesystem::copy_file(tests::BinPath("tests/stockaded_next"), binary + ".dpkg-new");
    ASSERT_EQ(rename((binary + ".dpkg-new").c_str(), binary.c_str()), 0);
    const uint64_t asked = BootNow();
    StopAgent();
    // Programs of a release that differs are others: these cannot be kept.
    std::vector<std::filesystem::path> spoilt;
    for (const auto& pin : std::filesystem::recursive_directory_iterator(product_.pin_dir()))
        if (pin.path().filename() == "bss") spoilt.push_back(pin.path());
    ASSERT_EQ(spoilt.size(), 1u);
    ASSERT_TRUE(std::filesystem::remove(spoilt.front()));
    StartAgent(binary, bounding_);
    printf("[  FIGURE  ] %.2f s from the order to stop to the next version\n",
           static_cast<double>(BootNow() - asked) / 1e9);
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("agent2.err"), "taken over"); }))
        << product_.Get("agent2.err");
    EXPECT_THAT(version(), HasSubstr("-next\""));
    EXPECT_THAT(product_.Get("agent2.err"), Not(HasSubstr("programs of the earlier agent kept")));
    ASSERT_EQ(kill(attacker, SIGCONT), 0);
    EXPECT_TRUE(goes_on());
    product_.Put("in/stop", "");
    const Ran ran = product_.Finish(attacker, "attacker");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, Not(HasSubstr("EFFECT")));
    EXPECT_FALSE(ran.Refusals().empty());
    StopAgent();
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

}  // namespace
}  // namespace stockade::testing_service
