// Every shipped rule is fired by what it is about, done for real in a sandbox, and none by honest work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/tools/product.h"
#include "userspace/detect/parse.h"

namespace stockade::tests {
namespace {

using ::testing::IsEmpty;

// What the scripts of triggers.list may use.
constexpr char kPrelude[] = R"sh(T=/tmp/t; S=/dev/shm; mkdir -p $T
put() { echo x >"$1"; }
fake() { program=$T/$1; shift; cp /bin/true "$program"; "$program" "$@"; }
dial() { { [ $# -eq 0 ] && cat || echo "$@"; } | python3 -c '
import socket, sys
for line in sys.stdin:
    address, port = line.split()
    s = socket.socket()
    s.setblocking(False)
    try: s.connect((address, int(port)))
    except OSError: pass
'; }
ask() { { [ $# -eq 0 ] && cat || echo "$@"; } | python3 -c '
import random, re, socket, struct, sys
server = re.search(r"nameserver (\S+)", open("/etc/resolv.conf").read()).group(1)
for line in sys.stdin:
    kind, name = line.split()
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    query = struct.pack(">HHHHHH", random.getrandbits(16), 0x500 if kind == "ODD" else 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", {"A": 1, "ODD": 1, "TXT": 16}[kind], 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try: s.sendto(query, (server, 53))
    except OSError: pass
'; }
)sh";

// A script with what stands in braces before it.
struct Trigger {
    std::string policy = "open";
    std::vector<std::string> flags;
    std::string script;
};
Trigger Parse(absl::string_view text, const std::string& dir) {
    Trigger trigger;
    if (absl::ConsumePrefix(&text, "{")) {
        for (absl::string_view word : absl::StrSplit(text.substr(0, text.find('}')), ' ')) {
            if (absl::ConsumePrefix(&word, "policy=")) {
                trigger.policy = std::string(word);
            } else {
                trigger.flags.push_back(absl::StrReplaceAll(word, {{"@", dir}}));
            }
        }
        text.remove_prefix(text.find('}') + 1);
    }
    trigger.script = std::string(text);
    return trigger;
}

constexpr char kAll[] = "  record: {exec: all, files: all, network: all, dns: all}\n";

// Name -> script.
std::map<std::string, std::string> Table(const std::string& file) {
    std::map<std::string, std::string> table;
    std::string name;
    for (absl::string_view line : absl::StrSplit(ReadText(SourcePath("tests/rules/" + file)), '\n')) {
        if (line.empty() || line[0] == '#') continue;
        if (absl::ConsumePrefix(&line, "    ")) {
            absl::StrAppend(&table[name], "\n", line);
            continue;
        }
        name = std::string(line.substr(0, line.find(' ')));
        EXPECT_EQ(table.count(name), 0u) << file << ": twice " << name;
        table[name] = std::string(absl::StripAsciiWhitespace(line.substr(name.size())));
    }
    return table;
}

struct ShippedRule {
    std::string id, name;
};

// Those that give findings; what only correlations use is fired with them.
std::vector<ShippedRule> Pack() {
    std::vector<policy::SourceFile> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(SourcePath("rules/detections"))) {
        if (entry.path().extension() == ".yaml") files.push_back({entry.path(), ReadText(entry.path())});
    }
    const detect::ParsedRules parsed = detect::ParseRules(files);
    EXPECT_THAT(parsed.diagnostics, IsEmpty());
    std::set<std::string> bases;
    for (const detect::Rule& rule : parsed.rules) {
        if (!rule.correlation || rule.correlation->generate) continue;
        for (const policy::Entry& base : rule.correlation->rules) bases.insert(base.text);
    }
    std::vector<ShippedRule> pack;
    for (const detect::Rule& rule : parsed.rules) {
        if (bases.count(rule.name) == 0 && bases.count(rule.id) == 0) pack.push_back({rule.id, rule.name});
    }
    return pack;
}

class RulesLive : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        product_ = new Product(absl::StrCat("rules: {dirs: [", SourcePath("rules/detections"), "]}\n"));
        Open("open", "  network: {allow: []}\n");
        Open("names",
             "  network: {allow: []}\n  dns: {mode: observe, resolvers: [192.0.2.53], budget: {zone: 64KiB, "
             "total: 64KiB}}\n");
        Open("strict", "  mode: enforce\n  network: {allow: [], violation: kill-sandbox}\n");
        for (const char* name :
             {"etc/shadow", "etc/passwd", "etc/cron.d/old", "etc/stockade/config.yaml", "dev-mem"})
            product_->Put(name, "x\n", 0666);
        product_->Put("etc/resolv.conf", "nameserver 192.0.2.53\n");
        for (const char* name : {"etc", "etc/cron.d", "sockets"}) {
            std::filesystem::create_directories(product_->Path(name));
            chmod(product_->Path(name).c_str(), 0777);
        }
        socket_ = ListenAt(product_->Path("sockets/docker.sock"));
        for (const auto& entry : std::filesystem::directory_iterator(SourcePath("rules/policies"))) {
            const std::string name = entry.path().stem();
            product_->Put("all/" + name + ".yaml",
                          absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ",
                                       name, "-recorded}\nspec:\n  extends: [", name, "]\n", kAll));
        }
        std::filesystem::create_directories(product_->Path("in"));
        std::filesystem::create_directories(product_->Path("out"));
    }
    static void TearDownTestSuite() {
        close(socket_);
        delete product_;
        product_ = nullptr;
    }
    // A policy that refuses nothing unless `more` says so.
    static void Open(const std::string& name, const std::string& more) {
        const bool observe = !absl::StrContains(more, "mode: enforce");
        product_->Put(
            name + ".yaml",
            absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                         "}\nspec:\n", observe ? "  mode: observe\n" : "", "  exec: {allow: [/**]}\n",
                         "  files: {read: [/**], write: [/**]}\n", more, kAll));
    }
    static int ListenAt(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        EXPECT_LT(path.size(), sizeof(address.sun_path));
        path.copy(address.sun_path, sizeof(address.sun_path) - 1);
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(listen(fd, 8), 0);
        chmod(path.c_str(), 0777);
        return fd;
    }
    static Ran Run(const std::string& policy, const std::vector<std::string>& command) {
        return product_->Run(product_->Path(policy), command,
                             {"--in", product_->Path("in"), "--out", product_->Path("out")});
    }
    // Titles and ids of the findings of the closing summary.
    static std::vector<std::string> Findings(const Ran& ran) {
        std::vector<std::string> found;
        const auto& fields = ran.result.struct_value().fields();
        if (fields.count("summary") == 0) return {"(no result)"};
        const auto& summary = fields.at("summary").struct_value().fields();
        if (summary.count("findings") == 0) return found;
        for (const Json& row : summary.at("findings").list_value().values())
            found.push_back(absl::StrCat(At(row, "title"), " ", At(row, "rule")));
        return found;
    }
    static bool Fires(const Ran& ran, const std::string& id) {
        const std::vector<std::string> found = Findings(ran);
        return std::any_of(found.begin(), found.end(),
                           [&](const std::string& text) { return absl::EndsWith(text, " " + id); });
    }
    static inline Product* product_;
    static inline int socket_ = -1;
};

// Those that are fired by a test of their own, ATaskThatIsMovedOut.
const std::set<std::string> kFromOutside = {"cgroup_left"};

TEST_F(RulesLive, EachShippedRuleIsFiredByItsTrigger) {
    const std::map<std::string, std::string> triggers = Table("triggers.list"), pods = Table("pod_triggers.list");
    size_t fired = 0;
    std::set<std::string> known;
    for (const ShippedRule& rule : Pack()) {
        known.insert(rule.name);
        const auto trigger = triggers.find(rule.name);
        EXPECT_EQ((trigger != triggers.end()) + pods.count(rule.name) + kFromOutside.count(rule.name), 1u)
            << rule.name << " needs a trigger, in one list";
        if (trigger == triggers.end()) continue;
        const Trigger parsed = Parse(trigger->second, product_->dir());
        std::vector<std::string> flags = {"--in", product_->Path("in"), "--out", product_->Path("out")};
        flags.insert(flags.end(), parsed.flags.begin(), parsed.flags.end());
        const Ran ran = product_->Run(product_->Path(parsed.policy + ".yaml"),
                                      {"/bin/bash", "-c", kPrelude + parsed.script}, flags);
        const bool fires = Fires(ran, rule.id);
        EXPECT_TRUE(fires) << rule.name << " is silent at: " << trigger->second << "\n"
                           << ran.err << absl::StrJoin(Findings(ran), "\n");
        fired += fires;
    }
    for (const auto& table : {triggers, pods}) {
        for (const auto& [name, text] : table) EXPECT_EQ(known.count(name), 1u) << "no shipped rule " << name;
    }
    std::cout << fired << " rules fired here, " << pods.size() << " are for pods, " << kFromOutside.size()
              << " from outside, of " << known.size() << " that give findings\n";
}

// A file that gets its name by a rename or a link is what it is called then, and a link is where it lies, not what it says.
TEST_F(RulesLive, NamesThatFilesGetLater) {
    std::map<std::string, std::string> ids;
    for (const ShippedRule& rule : Pack()) ids[rule.name] = rule.id;
    const auto fires = [&](const std::string& script, const std::string& rule) {
        const Ran ran = Run("open.yaml", {"/bin/bash", "-c", absl::StrCat(kPrelude, "mkdir $T/.ssh\n", script)});
        EXPECT_EQ(ran.status, 0) << ran.Text();
        return Fires(ran, ids.at(rule));
    };
    EXPECT_TRUE(fires("put $T/n; mv $T/n $T/.ssh/authorized_keys", "authorized_keys_written"));
    EXPECT_TRUE(fires("put $T/n; ln $T/n $T/.ssh/authorized_keys", "authorized_keys_written"));
    EXPECT_TRUE(fires("ln -s $T/n $T/.ssh/authorized_keys", "authorized_keys_written"));
    EXPECT_FALSE(fires("ln -s $T/.ssh/authorized_keys $T/l", "authorized_keys_written"));
    EXPECT_FALSE(fires("put $T/n; chmod 755 $T/n; python3 -c 'import os; os.chmod(\"/tmp/t/n\", os.stat(\"/tmp/t/n\").st_mode)'", "setuid_set"));
}

// What a pipe is opened by has no name, and is no loss.
TEST_F(RulesLive, APipeThatIsOpenedByItsDescriptorIsNoLoss) {
    const Ran ran = Run("open.yaml", {"/bin/sh", "-c", "echo hi | cat /dev/stdin"});
    EXPECT_EQ(ran.out, "hi\n") << ran.Text();
    EXPECT_TRUE(std::any_of(ran.events.begin(), ran.events.end(), [](const Json& event) { return absl::StartsWith(At(event, "file.path"), "pipe:["); })) << ran.Text();
    EXPECT_TRUE(std::none_of(ran.events.begin(), ran.events.end(), [](const Json& event) { return At(event, "kind") == "lost"; }));
}

TEST_F(RulesLive, ATaskThatIsMovedOut) {
    std::map<std::string, std::string> ids;
    for (const ShippedRule& rule : Pack()) ids[rule.name] = rule.id;
    int count = 0;
    const auto run = [&](const std::function<void(const std::string& cgroup)>& meddle) {
        const std::string tag = absl::StrCat("outside", ++count);
        const pid_t pid =
            product_->StartRun(product_->Path("open.yaml"), {"/bin/sh", "-c", "echo up; sleep 2"}, tag);
        EXPECT_TRUE(Until([&] { return product_->Get(tag + ".out") == "up\n"; }))
            << product_->Get(tag + ".err");
        const std::vector<std::string> sandboxes = product_->Sandboxes();
        EXPECT_EQ(sandboxes.size(), 1u);
        if (sandboxes.size() == 1) meddle(product_->Cgroup() + "/" + sandboxes[0]);
        return product_->Finish(pid, tag);
    };
    const Ran stays = run([](const std::string&) {});
    EXPECT_FALSE(Fires(stays, ids["cgroup_left"])) << stays.Text();
    const Ran left = run([](const std::string& cgroup) {
        // The first line is the sandbox's first process.
        (void)Wait(Start(
            {.argv = {"/bin/sh", "-c",
                      "read pid <" + cgroup + "/cgroup.procs; echo $pid >" + Cgroup2() + "/cgroup.procs"},
             .out = "/dev/null",
             .err = product_->Path("left.err")}));
    });
    EXPECT_TRUE(Fires(left, ids["cgroup_left"])) << left.Text() << product_->Get("left.err");
}

// The control: the same prelude, without a trigger.
TEST_F(RulesLive, TheTriggersOwnWordsFireNothing) {
    const Ran ran = Run("open.yaml", {"/bin/bash", "-c", absl::StrCat(kPrelude, "true")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(Findings(ran), IsEmpty());
}

void ExpectSilent(const Ran& ran, const std::vector<std::string>& findings) {
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(findings, IsEmpty()) << ran.Text();
    // Silent for there was nothing to be seen would prove nothing.
    EXPECT_TRUE(std::any_of(ran.events.begin(), ran.events.end(), [](const Json& event) {
        return At(event, "kind") == "file" && At(event, "verdict") == "allow";
    })) << "no file was recorded";
}

TEST_F(RulesLive, BuildToolIsSilent) {
    product_->Put("in/c/hello.c", "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 42); }\n");
    product_->Put("in/c/Makefile", "all: hello\nhello: hello.o\ntest: hello\n\t./hello | grep -qx 42\n");
    const Ran ran = Run("all/build-tool.yaml",
                        {"sh", "-ec", "cp -r /in/c /out/c && cd /out/c && make -s all test && strip hello"});
    ExpectSilent(ran, Findings(ran));
}

TEST_F(RulesLive, PythonToolIsSilent) {
    const Ran ran =
        Run("all/python-tool.yaml",
            {"python3", "-c", "import json, pathlib; pathlib.Path('/out/x').write_text(json.dumps([42]))"});
    ExpectSilent(ran, Findings(ran));
}

TEST_F(RulesLive, NodeToolIsSilent) {
    product_->Put("in/pkg/package.json",
                  R"({"name": "tiny", "version": "1.0.0", "scripts": {"test": "node test.js"}})");
    product_->Put("in/pkg/test.js", "require('fs').writeFileSync('/out/report.txt', 'passed\\n');\n");
    const Ran ran = product_->Run(product_->Path("all/node-tool.yaml"), {"npm", "test"},
                                  {"--in", product_->Path("in"), "--out", product_->Path("out"), "--workdir",
                                   "/in/pkg", "--env", "npm_config_update_notifier=false"});
    ExpectSilent(ran, Findings(ran));
}

TEST_F(RulesLive, ShellToolIsSilent) {
    product_->Put("in/values.json", "{\"values\": [1, 2, 39]}\n");
    const Ran ran = Run("all/shell-tool.yaml",
                        {"bash", "-euc",
                         "cd /tmp; cp /in/values.json .; tar czf /out/v.tgz values.json; rm values.json; "
                         "tar xzf /out/v.tgz; jq -r '.values[]' values.json | sort | wc -l"});
    ExpectSilent(ran, Findings(ran));
}

TEST_F(RulesLive, NetworklessIsSilent) {
    const Ran ran = Run("all/networkless.yaml",
                        {"sh", "-ec", "id -u >/out/uid; ls / | wc -l >/dev/null; cat /etc/passwd | wc -l"});
    ExpectSilent(ran, Findings(ran));
}

// It refuses the command itself: a violation, which no rule is about by itself.
TEST_F(RulesLive, DenyAllIsSilent) {
    const Ran ran = Run("all/deny-all.yaml", {"/usr/bin/true"});
    EXPECT_NE(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.Refusals(), testing::Not(IsEmpty())) << ran.Text();
    EXPECT_THAT(Findings(ran), IsEmpty()) << ran.Text();
}

}  // namespace
}  // namespace stockade::tests
