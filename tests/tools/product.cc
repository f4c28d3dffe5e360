#include "tests/tools/product.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"

namespace stockade::tests {
namespace {

namespace fs = std::filesystem;

std::string Scalar(const Json& value) {
    switch (value.kind_case()) {
        case Json::kStringValue:
            return value.string_value();
        case Json::kBoolValue:
            return value.bool_value() ? "true" : "false";
        case Json::kNumberValue: {
            const double number = value.number_value();
            return number == std::floor(number) && std::fabs(number) < 1e15
                       ? absl::StrCat(static_cast<int64_t>(number))
                       : absl::StrCat(number);
        }
        case Json::kStructValue:
            return "{...}";
        case Json::kListValue:
            return "[...]";
        default:
            return "";
    }
}

// What was only seen, such as a path that no object stands for under signal, was not refused.
bool IsRefusal(const Json& event) {
    const std::string verdict = At(event, "verdict");
    return !verdict.empty() && verdict != "allow" && At(event, "outcome") != "seen";
}

// The one word that says what an event is about.
std::string Subject(const Json& event) {
    for (const char* path : {"exec.path", "file.path", "net.path", "escape.op", "lifecycle.op"}) {
        const std::string text = At(event, path);
        if (!text.empty()) return text;
    }
    return absl::StrCat(At(event, "net.address"), ":", At(event, "net.port"));
}

// A process that keeps it says so by its name.
bool IsSpare(const std::string& id) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
        const std::string dir = entry.path();
        if (ReadText(dir + "/comm") == "stockade-spare\n" &&
            absl::StrContains(ReadText(dir + "/cmdline"), id))
            return true;
    }
    return false;
}

// Nothing of it runs, and all that it had open is closed.
bool IsGone(pid_t pid) {
    if (kill(pid, 0) != 0) return true;
    std::error_code error;
    const auto tasks = fs::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error);
    const std::string stat = ReadText(absl::StrCat("/proc/", pid, "/stat"));
    const size_t name_end = stat.rfind(") ");
    return !error && std::distance(begin(tasks), end(tasks)) == 1 && name_end != stat.npos && stat[name_end + 2] == 'Z';
}

}  // namespace

std::string Cgroup2() {
    std::ifstream mounts("/proc/self/mounts");
    std::string line;
    while (std::getline(mounts, line)) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (words.size() > 2 && words[2] == "cgroup2") return words[1];
    }
    return "/sys/fs/cgroup";
}

Json ParseJson(const std::string& text) {
    Json value;
    if (text.empty() || !google::protobuf::util::JsonStringToMessage(text, &value).ok()) value.Clear();
    return value;
}

std::string At(const Json& value, const std::string& path) {
    const Json* at = &value;
    for (const absl::string_view name : absl::StrSplit(path, '.')) {
        if (at->kind_case() != Json::kStructValue) return "";
        const auto it = at->struct_value().fields().find(std::string(name));
        if (it == at->struct_value().fields().end()) return "";
        at = &it->second;
    }
    return Scalar(*at);
}

std::vector<std::string> Ran::Refusals() const {
    std::vector<std::string> refusals;
    for (const Json& event : events) {
        if (!IsRefusal(event)) continue;
        refusals.push_back(absl::StrCat(At(event, "kind"), " ", Subject(event), ", ", At(event, "verdict"),
                                        ", ", At(event, "outcome"), ", ", At(event, "lock")));
    }
    return refusals;
}

Json Ran::Refusal(const std::string& text) const {
    for (const Json& event : events) {
        if (!IsRefusal(event)) continue;
        if (absl::StrContains(At(event, "reason"), text)) return event;
    }
    return Json();
}

std::string Ran::Text() const {
    return absl::StrCat("status ", status, ", end ", At(result, "end"), ", reason ", At(result, "reason"),
                        "\n--- out\n", out, "--- err\n", err, "--- refusals\n",
                        absl::StrJoin(Refusals(), "\n"), "\n");
}

pid_t Start(const Command& command) {
    std::vector<char*> argv;
    for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const int in = open(command.in.c_str(), O_RDONLY);
    const int out = open(command.out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err = open(command.err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    close_range(3, ~0u, 0);
    if (command.in_child) command.in_child();
    execv(argv[0], argv.data());
    _exit(99);
}

int Wait(pid_t pid) {
    int status = 0;
    pid_t got;
    do {
        got = waitpid(pid, &status, 0);
    } while (got < 0 && errno == EINTR);
    if (got != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Until(const std::function<bool()>& fn, int seconds) {
    const uint64_t end = BootNow() + static_cast<uint64_t>(seconds) * 1'000'000'000;
    while (!fn()) {
        if (BootNow() > end) return false;
        usleep(5000);  // between two looks, not instead of them
    }
    return true;
}

std::string ReadText(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    ASSERT_TRUE(file.good()) << path;
}

std::string SourcePath(const std::string& name) {
    return absl::StrCat(std::getenv("STOCKADE_SOURCE_DIR"), "/", name);
}

std::string BinPath(const std::string& name) {
    return absl::StrCat(std::getenv("STOCKADE_BIN_DIR"), "/", name);
}

std::string FindProgram(const std::string& name) {
    for (const char* dir : {"/usr/local/bin/", "/usr/bin/", "/bin/"}) {
        const std::string path = dir + name;
        if (access(path.c_str(), X_OK) == 0) return path;
    }
    return "";
}

Product::Product(const std::string& more_config) {
    static int number = 0;
    tag_ = absl::StrCat("stockade_t", getpid(), "_", ++number);
    dir_ = absl::StrCat("/var/tmp/", tag_);
    cgroup_ = Cgroup2() + "/" + tag_;
    fs::create_directories(dir_);
    chmod(dir_.c_str(), 0755);
    WriteText(config(), absl::StrCat("runtime_dir: ", dir_, "/run\nstate_dir: ", dir_, "/state\npin_dir: ", pin_dir(),
                                     "\ncgroup_name: ", tag_, "\nagent_wait_seconds: 5\npolicy_dirs: [",
                                     SourcePath("rules/policies"), "]\n"));
    if (!more_config.empty()) Configure(more_config);
}

void Product::Configure(const std::string& lines) {
    std::string text;
    for (const absl::string_view line : absl::StrSplit(Get("config.yaml"), '\n', absl::SkipEmpty())) {
        const absl::string_view key = line.substr(0, line.find(':') + 1);
        if (!absl::StartsWith(lines, key) && !absl::StrContains(lines, absl::StrCat("\n", key)))
            absl::StrAppend(&text, line, "\n");
    }
    WriteText(config(), text + lines);
}

Product::~Product() {
    StopAgent(SIGTERM);
    for (const pid_t pid : Processes()) kill(pid, SIGKILL);
    std::error_code ignored;
    fs::remove_all(pin_dir(), ignored);
    (void)Until([this] { return Processes().empty() && Spare().empty(); });
    for (const std::string& name : Sandboxes()) rmdir((cgroup_ + "/" + name).c_str());
    rmdir(cgroup_.c_str());
    fs::remove_all(dir_, ignored);
}

std::string Product::Put(const std::string& name, const std::string& text, int mode) {
    const std::string path = Path(name);
    fs::create_directories(fs::path(path).parent_path());
    WriteText(path, text);
    chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
}

pid_t Product::StartStockade(const std::vector<std::string>& words, const std::string& tag,
                             const std::function<void()>& in_child) {
    Command command{.argv = {BinPath("stockade"), "--config", config()},
                    .out = Path(tag + ".out"),
                    .err = Path(tag + ".err"),
                    .in_child = in_child};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    return Start(command);
}

pid_t Product::StartRun(const std::string& policy, const std::vector<std::string>& command,
                        const std::string& tag, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"run", "--policy", policy};
    words.insert(words.end(), {"--events", Path(tag + ".events"), "--result", Path(tag + ".json")});
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return StartStockade(words, tag);
}

Ran Product::Finish(pid_t pid, const std::string& tag) {
    Ran ran;
    ran.status = Wait(pid);
    ran.out = Get(tag + ".out");
    ran.err = Get(tag + ".err");
    ran.result = ParseJson(Get(tag + ".json"));
    for (const absl::string_view line : absl::StrSplit(Get(tag + ".events"), '\n', absl::SkipEmpty())) {
        ran.events.push_back(ParseJson(std::string(line)));
        EXPECT_NE(ran.events.back().kind_case(), Json::KIND_NOT_SET) << "no JSON: " << line;
    }
    return ran;
}

Ran Product::Run(const std::string& policy, const std::vector<std::string>& command,
                 const std::vector<std::string>& flags) {
    const std::string tag = absl::StrCat("run", ++count_);
    return Finish(StartRun(policy, command, tag, flags), tag);
}

Ran Product::Stockade(const std::vector<std::string>& words) {
    const std::string tag = absl::StrCat("words", ++count_);
    return Finish(StartStockade(words, tag), tag);
}

pid_t Product::AgentPid() const {
    int pid = 0;
    if (!absl::SimpleAtoi(absl::StripSuffix(Get("run/agent.lock"), "\n"), &pid)) return 0;
    // The file outlives the agent, and numbers come back.
    const std::string command = ReadText(absl::StrCat("/proc/", pid, "/cmdline"));
    return absl::StrContains(command, "stockaded") && absl::StrContains(command, dir_) ? pid : 0;
}

pid_t Product::AwaitAgent(pid_t other_than) {
    pid_t pid = 0;
    (void)Until([&] {
        pid = AgentPid();
        return pid != 0 && pid != other_than && fs::exists(Path("run/agent.sock"));
    });
    return pid;
}

void Product::StopAgent(int signo) {
    const pid_t pid = AgentPid();
    if (pid == 0 || kill(pid, signo) != 0) return;
    // Its last task: what it has open is closed after the rest of it is gone, and its socket last of all. Not until it is reaped: whose
    // child it is may take seconds for that.
    EXPECT_TRUE(Until([&] { return IsGone(pid); })) << "the agent does not end";
}

pid_t Product::ShimPid() const {
    const std::vector<pid_t> inside = Processes();
    for (const pid_t pid : inside) {
        // "PID (NAME) STATE PPID ...": names of ours have no bracket.
        const std::vector<std::string> words = absl::StrSplit(ReadText(absl::StrCat("/proc/", pid, "/stat")),
                                                              absl::ByAnyChar(" )"), absl::SkipEmpty());
        int parent = 0;
        if (words.size() < 4 || !absl::SimpleAtoi(words[3], &parent) || parent <= 1) continue;
        if (std::find(inside.begin(), inside.end(), parent) != inside.end()) continue;
        if (absl::StartsWith(ReadText(absl::StrCat("/proc/", parent, "/comm")), "stockade-shim"))
            return parent;
    }
    return 0;
}

std::vector<std::string> Product::Sandboxes() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(cgroup_, error)) {
        if (entry.is_directory() && !IsSpare(entry.path().filename()))
            names.push_back(entry.path().filename());
    }
    return names;
}

std::string Product::Spare() const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(cgroup_, error)) {
        if (entry.is_directory() && IsSpare(entry.path().filename())) return entry.path().filename();
    }
    return "";
}

std::vector<pid_t> Product::Processes() const {
    std::vector<pid_t> pids;
    for (const std::string& name : Sandboxes()) {
        for (const absl::string_view line :
             absl::StrSplit(ReadText(cgroup_ + "/" + name + "/cgroup.procs"), '\n', absl::SkipEmpty())) {
            int pid = 0;
            if (absl::SimpleAtoi(line, &pid)) pids.push_back(pid);
        }
    }
    return pids;
}

std::string Product::LeftOver() const {
    std::vector<std::string> left;
    for (const std::string& name : Sandboxes()) left.push_back("cgroup " + name);
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(Path("run/sandboxes"), error)) {
        left.push_back("state " + entry.path().filename().string());
    }
    if (absl::StrContains(ReadText("/proc/self/mounts"), dir_)) left.push_back("a mount below " + dir_);
    return absl::StrJoin(left, ", ");
}

}  // namespace stockade::tests
