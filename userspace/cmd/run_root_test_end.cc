// What ends a run, what the other commands say of it, and the agent that it needs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/api/channel.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/run_testing.h"

namespace stockade::cmd {
namespace {

TEST_F(Run, TimeoutEndsIt) {
    const Ran ran = Sh("sleep 100", {"--timeout", "300ms", "--result", dir_ + "/r.json"});
    EXPECT_EQ(ran.status, 137);
    EXPECT_TRUE(absl::StrContains(Read("r.json"), "\"end\":\"timeout\"")) << Read("r.json");
}

// A lease makes every open of the file wait, the one of execve too.
TEST_F(Run, TimeoutEndsACommandWhoseExecveWaits) {
    std::filesystem::copy_file("/bin/true", dir_ + "/slow");
    signal(SIGIO, SIG_IGN);  // what tells the holder of the lease
    Fd lease(open((dir_ + "/slow").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(fcntl(lease.get(), F_SETLEASE, F_WRLCK), 0);
    const uint64_t start = BootNow();
    const Ran ran = Stockade({"run", "-p", dir_ + "/open.yaml", "--bind", dir_ + "/slow:/slow", "--timeout",
                              "300ms", "--result", dir_ + "/slow.json", "--", "/slow"});
    EXPECT_LT(BootNow() - start, 20 * kSecond);
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(absl::StrContains(Read("slow.json"), "\"end\":\"timeout\"")) << Read("slow.json");
}

TEST_F(Run, APolicyKillIs137WithItsReason) {
    const Ran ran = Stockade({"run", "-p", dir_ + "/strict.yaml", "--result", dir_ + "/k.json", "--events",
                              dir_ + "/k.events", "--", "/bin/sh", "-c", "/usr/bin/id; /bin/sleep 100"});
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(ran.out.empty()) << ran.out;
    EXPECT_TRUE(absl::StrContains(ran.err, "/usr/bin/id")) << ran.err;
    EXPECT_TRUE(absl::StrContains(Read("k.json"), "\"end\":\"policy\"")) << Read("k.json");
    EXPECT_TRUE(absl::StrContains(Read("k.events"), "\"op\":\"killed\"")) << Read("k.events");
    const Ran control = Sh("/usr/bin/id");
    EXPECT_EQ(control.status, 0) << control.err;
    EXPECT_TRUE(absl::StrContains(control.out, "uid=")) << control.out;
}

TEST_F(Run, KilledClientLeavesNothing) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "cl");
    ASSERT_TRUE(Until([] { return Read("cl.out") == "up\n"; })) << Read("cl.err");
    kill(pid, SIGKILL);
    EXPECT_EQ(Finish(pid, "cl").status, 137);
    EXPECT_TRUE(Until(NothingLeft)) << Cgroups().size();
}

TEST_F(Run, AKilledShimTakesItsSandboxAlong) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "sh");
    ASSERT_TRUE(Until([] { return Read("sh.out") == "up\n"; })) << Read("sh.err");
    const std::string json = Stockade({"inspect", Cgroups().at(0), "-o", "json"}).out;
    const size_t at = json.find("\"shim_pid\":");
    ASSERT_NE(at, std::string::npos) << json;
    const int shim = std::atoi(json.c_str() + at + 11);
    ASSERT_GT(shim, 1);
    ASSERT_EQ(kill(shim, SIGKILL), 0);
    const Ran ran = Finish(pid, "sh");
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(absl::StrContains(ran.err, "keeper of the sandbox was killed")) << ran.err;
    EXPECT_TRUE(Until(NothingLeft)) << Cgroups().size();
}

TEST_F(Run, StockadeKillEndsASandbox) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "ki");
    ASSERT_TRUE(Until([] { return Read("ki.out") == "up\n"; })) << Read("ki.err");
    ASSERT_EQ(Cgroups().size(), 1u);
    const std::string id = Cgroups()[0];
    const Ran ps = Stockade({"ps", "-o", "json"});
    EXPECT_TRUE(absl::StrContains(ps.out, id)) << ps.out;
    EXPECT_TRUE(absl::StrContains(Stockade({"inspect", id, "-o", "json"}).out, "sleep 1000"));
    const Ran killed = Stockade({"kill", id, "--reason", "enough"});
    EXPECT_EQ(killed.status, 0) << killed.err;
    const Ran ran = Finish(pid, "ki");
    EXPECT_EQ(ran.status, 137);
    EXPECT_TRUE(absl::StrContains(ran.err, "enough")) << ran.err;
}

// Together their command lines have more than a message may, and their labels more than a page.
TEST_F(Run, PsShowsLongCommandsCutAndAllPages) {
    std::vector<std::string> args = {"run", "-p", dir_ + "/open.yaml"};
    for (int i = 0; i < 31; ++i) {
        args.push_back("--label");
        args.push_back(absl::StrCat("key", i, "=", std::string(250, 'v')));
    }
    for (const char* word : {"--", "/bin/sh", "-c", "echo up; sleep 1000"}) args.push_back(word);
    for (int i = 0; i < 2; ++i) args.push_back(std::string(90000, 'x'));
    std::vector<pid_t> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(Start(args, absl::StrCat("ps", i)));
    for (int i = 0; i < 10; ++i) {
        const std::string tag = absl::StrCat("ps", i);
        ASSERT_TRUE(Until([&] { return Read(tag + ".out") == "up\n"; })) << Read(tag + ".err");
    }
    const Ran ps = Stockade({"ps", "-o", "json"});
    EXPECT_EQ(ps.status, 0) << ps.err;
    for (const std::string& id : Cgroups()) EXPECT_TRUE(absl::StrContains(ps.out, id)) << id;
    EXPECT_TRUE(absl::StrContains(ps.out, "echo up; sleep 1000 xxx")) << ps.out.substr(0, 2000);
    EXPECT_TRUE(absl::StrContains(ps.out, "\"command_truncated\":true"));
    EXPECT_TRUE(absl::StrContains(Stockade({"ps"}).out, "echo up; sleep 1000 xxx"));
    const Ran inspect = Stockade({"inspect", Cgroups().at(0), "-o", "json"});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    for (const pid_t client : clients) kill(client, SIGKILL);
    for (const pid_t client : clients) (void)Finish(client, "t");
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, AnAgentOutOfDescriptorsWaitsForOne) {
    ASSERT_EQ(Sh("true").status, 0);
    const pid_t agent = AgentPid();
    // What the kernel itself leaves out in this time is told there, too, and is none of this case's.
    const auto lines = [] {
        const std::vector<std::string> log = absl::StrSplit(Read("run/agent.log"), '\n');
        return std::count_if(log.begin(), log.end(), [](const std::string& line) {
            return absl::StrContains(line, "(EMFILE)") || absl::StrContains(line, "reading the rings");
        });
    };
    const auto before = lines();
    rlimit old{};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, nullptr, &old), 0);
    EXPECT_EQ(old.rlim_cur, old.rlim_max) << "it takes all that it may have";
    const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &none, nullptr), 0);
    StatusOr<api::Channel> waits = api::Channel::Connect(dir_ + "/run/agent.sock");
    ASSERT_TRUE(waits.ok()) << waits.status();
    ASSERT_TRUE(Until([&] { return lines() > before; }));
    usleep(1'500'000);  // in which a loop without pause says it thousands of times
    EXPECT_LE(lines(), before + 2) << Read("run/agent.log");
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &old, nullptr), 0);
    api::Message ping;
    ping.mutable_ping();
    ASSERT_TRUE(waits->Send(ping).ok());
    EXPECT_TRUE(waits->Receive(5000).ok());
    EXPECT_EQ(Stockade({"ps"}).status, 0);
}

// The offender is dead at once; what is left of its sandbox dies as soon as the agent can ask for it.
TEST_F(Run, AKillThatFoundNoDescriptorIsMadeLater) {
    const pid_t pid = Start({"run", "-p", dir_ + "/strict.yaml", "--", "/bin/sh", "-c",
                             "trap /bin/ls USR1; sleep 1000 & echo up; while :; do sleep 0.05; done"},
                            "later");
    ASSERT_TRUE(Until([] { return Read("later.out") == "up\n"; })) << Read("later.err");
    const pid_t agent = AgentPid();
    rlimit old{};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, nullptr, &old), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &none, nullptr), 0);
    EXPECT_EQ(kill(pid, SIGUSR1), 0);  // the client hands it on
    const bool told = Until([] { return absl::StrContains(Read("run/agent.log"), "its kill has to wait"); });
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &old, nullptr), 0);
    EXPECT_TRUE(told) << Read("run/agent.log");
    const Ran ran = Finish(pid, "later");
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, AnExitStatusIsNoSignal) {
    std::filesystem::create_directory(dir_ + "/shown");
    for (const int status : {137, 159}) {
        const Ran ran = Sh(absl::StrCat("echo x >/out/f; exit ", status), {"--out", dir_ + "/shown", "--result", dir_ + "/exit.json"});
        EXPECT_EQ(ran.status, status);
        EXPECT_FALSE(absl::StrContains(ran.err, "seccomp")) << ran.err;
        EXPECT_TRUE(absl::StrContains(Read("exit.json"), "\"end\":\"exited\"")) << Read("exit.json");
        EXPECT_EQ(Read("shown/f"), "x\n");
    }
    EXPECT_EQ(Sh("kill -9 $$", {"--result", dir_ + "/exit.json"}).status, 137);
    EXPECT_TRUE(absl::StrContains(Read("exit.json"), "\"end\":\"signalled\"")) << Read("exit.json");
}

TEST_F(Run, ASecondAgentIsRefused) {
    ASSERT_EQ(Sh("true").status, 0);
    const std::string command = absl::StrCat(Bin("stockaded"), " --idle-exit 60s --config ", dir_, "/config.yaml 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    char line[1024] = "";
    EXPECT_NE(fgets(line, sizeof(line), pipe), nullptr);
    EXPECT_TRUE(absl::StrContains(line, "another agent runs")) << line;
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 125);
}

// With every thread that it can have: each of them could be the one that the signal finds.
// `stockaded` as a service manager starts it.
pid_t StartService(const std::string& config, const std::string& log) {
    const std::string binary = Bin("stockaded");
    const pid_t pid = fork();
    if (pid == 0) {
        const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, 1);
        dup2(out, 2);
        execl(binary.c_str(), binary.c_str(), "--config", config.c_str(), nullptr);
        _exit(99);
    }
    return pid;
}

int EndOf(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Run, AnAgentThatIsAskedToStopEndsByItself) {
    StopAgent(SIGTERM);
    Write("service.yaml", Read("config.yaml") + "metrics: {listen: 127.0.0.1:19464}\n");
    const pid_t pid = StartService(dir_ + "/service.yaml", dir_ + "/service.log");
    ASSERT_TRUE(Until([] { return absl::StrContains(Read("service.log"), "listening at"); }, 60 * kSecond)) << Read("service.log");
    ASSERT_EQ(kill(pid, SIGTERM), 0);
    EXPECT_EQ(EndOf(pid), 0) << Read("service.log");
}

TEST_F(Run, AnAgentThatIsAskedToMakeRoomForAServiceLeaves) {
    std::filesystem::create_directory(dir_ + "/room");
    const pid_t client = Start({"run", "-p", dir_ + "/open.yaml", "--in", dir_ + "/room", "--", "/bin/sh", "-c",
                                "echo up; while ! [ -e /in/go ]; do sleep 0.05; done; exit 5"}, "room");
    ASSERT_TRUE(Until([] { return Read("room.out") == "up\n"; })) << Read("room.err");
    const pid_t before = AgentPid();
    const pid_t service = StartService(dir_ + "/config.yaml", dir_ + "/room_service.log");
    ASSERT_TRUE(Until([] { return absl::StrContains(Read("room_service.log"), "listening at"); }, 60 * kSecond)) << Read("room_service.log");
    EXPECT_TRUE(absl::StrContains(Read("room_service.log"), absl::StrCat("the agent ", before, ", which a client started, was asked to leave")));
    EXPECT_EQ(AgentPid(), service) << Read("room_service.log");
    EXPECT_TRUE(Until([before] { return kill(before, 0) != 0; }));
    // Another service is refused by one that is there to stay.
    EXPECT_EQ(EndOf(StartService(dir_ + "/config.yaml", dir_ + "/second.log")), 125);
    EXPECT_TRUE(absl::StrContains(Read("second.log"), "another agent runs")) << Read("second.log");
    Write("room/go", "");
    const Ran ran = Finish(client, "room");
    EXPECT_EQ(ran.status, 5) << ran.err;
    EXPECT_TRUE(Until(NothingLeft));
    ASSERT_EQ(kill(service, SIGTERM), 0);
    EXPECT_EQ(EndOf(service), 0) << Read("room_service.log");
}

TEST_F(Run, AClientWaitsForAnAgentThatIsAtItsEnd) {
    StopAgent(SIGTERM);
    const StatusOr<Fd> dying = Fd::Open(dir_ + "/run/agent.lock", O_RDWR), start = Fd::Open(dir_ + "/run/start.lock", O_RDWR);
    ASSERT_TRUE(dying.ok() && start.ok());
    ASSERT_EQ(flock(dying->get(), LOCK_EX), 0);
    const pid_t client = Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/true"}, "wait");
    const bool waits = Until([&] {
        if (flock(start->get(), LOCK_EX | LOCK_NB) != 0) return true;
        (void)flock(start->get(), LOCK_UN);
        return false;
    });
    EXPECT_TRUE(waits);
    EXPECT_EQ(waitpid(client, nullptr, WNOHANG), 0) << Read("wait.err");
    ASSERT_EQ(flock(dying->get(), LOCK_UN), 0);
    const Ran ran = Finish(client, "wait");
    EXPECT_EQ(ran.status, 0) << ran.err;
}

TEST_F(Run, AKilledAgentIsSucceededAndTheSandboxGoesOn) {
    std::filesystem::create_directory(dir_ + "/shown");
    const pid_t pid = Start({"run", "-p", dir_ + "/open.yaml", "--in", dir_ + "/shown", "--", "/bin/sh", "-c",
                             "echo up; while ! [ -e /in/go ]; do sleep 0.05; done; exit 5"},
                            "ad");
    ASSERT_TRUE(Until([] { return Read("ad.out") == "up\n"; })) << Read("ad.err");
    const pid_t before = AgentPid();
    StopAgent(SIGKILL);
    ASSERT_TRUE(Until([] { return absl::StrContains(Stockade({"ps", "-o", "json"}).out, "Adopted"); }));
    EXPECT_NE(AgentPid(), before);
    Write("shown/go", "");
    const Ran ran = Finish(pid, "ad");
    EXPECT_EQ(ran.status, 5) << ran.err;
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, ARelativeConfigurationIsFoundByTheAgentThatIsStarted) {
    StopAgent(SIGTERM);
    const std::string command =
        absl::StrCat("cd ", dir_, " && ", Bin("stockade"),
                     " --config config.yaml run -q -p open.yaml -- /bin/true 2>relative.err");
    EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 0) << Read("relative.err");
    EXPECT_EQ(Read("relative.err"), "") << "one configuration under two names";
}

TEST_F(Run, AnotherConfigurationThanTheAgentsIsSaid) {
    ASSERT_EQ(Sh("true").status, 0);
    const std::string text = Read("config.yaml");
    Write("other.yaml", absl::StrCat(text, "default_policy: open\nmemory_max_mib: 7\n"));
    const auto run = [] {
        const std::string command =
            absl::StrCat(Bin("stockade"), " --config ", dir_, "/other.yaml run -q -p ", dir_,
                         "/open.yaml -- /bin/true 2>", dir_, "/other.err");
        EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 0) << Read("other.err");
        return Read("other.err");
    };
    const std::string warned = run();
    EXPECT_TRUE(absl::StrContains(warned, "(default_policy, memory_max_mib)")) << warned;
    EXPECT_TRUE(absl::StrContains(warned, "restart it")) << warned;
    StopAgent(SIGTERM);
    EXPECT_EQ(run(), "") << "an agent of this configuration";
    StopAgent(SIGTERM);
}

}  // namespace
}  // namespace stockade::cmd
