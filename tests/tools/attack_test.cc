// The same attacks under each shipped policy that a tool can be injected into: refused, and by a lock of ours; and
// under `mode: observe`, where each of them works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kSecret[] = "PRIVATE-KEY-1234";

// A network of its own, one hop behind this host, with a listener in it that greets.
class Listener {
  public:
    explicit Listener(Product& product) : out_(product.Path("listener.out")) {
        name_ = absl::StrCat("skt", getpid() % 100000);
        const std::string script = absl::StrReplaceAll(
            "set -e; ip netns add N; ip link add N0 type veth peer name N1 netns N\n"
            "ip addr add 198.51.100.9/30 dev N0; ip link set N0 up\n"
            "echo 1 >/proc/sys/net/ipv4/conf/N0/forwarding\n"
            "ip -n N addr add 198.51.100.10/30 dev N1; ip -n N link set N1 up; ip -n N link set lo up\n"
            "ip -n N route add default via 198.51.100.9\n",
            {{"N", name_}});
        Shell(script);
        pid_ = Start({.argv = {"/bin/sh", "-c",
                               absl::StrCat("exec ip netns exec ", name_, " python3 -c \"",
                                            "import socket\ns = socket.create_server(('', 8080))\n"
                                            "print('up', flush=True)\nwhile True:\n"
                                            "    c, _ = s.accept(); c.sendall(b'GREETING'); c.close()\"")},
                      .out = out_,
                      .err = out_ + ".err"});
        EXPECT_TRUE(Until([this] { return ReadText(out_) == "up\n"; })) << ReadText(out_ + ".err");
    }
    ~Listener() {
        kill(pid_, SIGKILL);
        (void)Wait(pid_);
        Shell(absl::StrReplaceAll("ip netns del N; ip link del N0 2>/dev/null || true", {{"N", name_}}));
    }

  private:
    void Shell(const std::string& script) {
        EXPECT_EQ(Wait(Start({.argv = {"/bin/sh", "-c", script}, .out = "/dev/null", .err = out_ + ".ip"})),
                  0)
            << ReadText(out_ + ".ip");
    }
    std::string name_;
    std::string out_;
    pid_t pid_ = -1;
};

class Attack : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        product_ = new Product;
        // Readable by mode bits and inside the sandbox, so that nothing but the policy protects it.
        product_->Put("in/.ssh/id_rsa", absl::StrCat(kSecret, "\n"));
        listener_ = new Listener(*product_);
        for (const char* name : {"python-tool", "node-tool", "build-tool", "shell-tool", "networkless"}) {
            product_->Put(
                absl::StrCat("observe-", name, ".yaml"),
                absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: observed-",
                             name, "}\nspec:\n  extends: [base, ", name, "]\n  mode: observe\n",
                             // A way out at all: without an allowed network there is no link.
                             "  network: {allow: [{cidr: 203.0.113.0/24, ports: [443]}]}\n"));
        }
    }
    static void TearDownTestSuite() {
        delete listener_;
        delete product_;
    }
    static Ran Enforced(const std::string& policy, const std::vector<std::string>& command) {
        return product_->Run(SourcePath("rules/policies/" + policy + ".yaml"), command,
                             {"--in", product_->Path("in")});
    }
    static Ran Observed(const std::string& policy, const std::vector<std::string>& command) {
        return product_->Run(product_->Path("observe-" + policy + ".yaml"), command,
                             {"--in", product_->Path("in")});
    }
    static inline Product* product_;
    static inline Listener* listener_;
};

void ExpectRefusedByUs(const Ran& ran, const std::string& what) {
    const Json event = ran.Refusal(what);
    EXPECT_THAT(At(event, "lock"), AnyOf("bpf", "landlock")) << what << "\n" << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr(what));
}

const std::vector<std::pair<std::string, std::vector<std::string>>>& Readers() {
    static const auto* readers = new std::vector<std::pair<std::string, std::vector<std::string>>>{
        {"python-tool", {"python3", "-c", "print(open('/in/.ssh/id_rsa').read())"}},
        {"node-tool", {"node", "-e", "console.log(require('fs').readFileSync('/in/.ssh/id_rsa', 'utf8'))"}},
        {"build-tool", {"cat", "/in/.ssh/id_rsa"}},
        {"shell-tool", {"sh", "-c", "cat /in/.ssh/id_rsa"}},
    };
    return *readers;
}

TEST_F(Attack, CredentialsAreNotRead) {
    for (const auto& [policy, command] : Readers()) {
        SCOPED_TRACE(policy);
        const Ran ran = Enforced(policy, command);
        EXPECT_NE(ran.status, 0);
        EXPECT_THAT(ran.out, Not(HasSubstr(kSecret)));
        ExpectRefusedByUs(ran, "/in/.ssh/id_rsa");
        const Ran control = Observed(policy, command);
        EXPECT_EQ(control.status, 0) << control.Text();
        EXPECT_THAT(control.out, HasSubstr(kSecret));
    }
}

// By names that are not those of the policy.
TEST_F(Attack, CredentialsAreNotReadByAnAlias) {
    for (const char* code :
         {"import os; os.symlink('/in/.ssh', '/tmp/s'); print(open('/tmp/s/id_rsa').read())",
          "import os; os.chdir('/in/.ssh'); print(open('id_rsa').read())",
          "print(open('/proc/self/root/in/.ssh/id_rsa').read())",
          "import os; d = os.open('/in', os.O_PATH); print(os.read(os.open('.ssh/id_rsa', 0, "
          "dir_fd=d), 99))"}) {
        const Ran ran = Enforced("python-tool", {"python3", "-c", code});
        EXPECT_NE(ran.status, 0) << code;
        EXPECT_THAT(ran.out, Not(HasSubstr(kSecret)));
        ExpectRefusedByUs(ran, "/in/.ssh");
        EXPECT_THAT(Observed("python-tool", {"python3", "-c", code}).out, HasSubstr(kSecret)) << code;
    }
}

// /dev/shm is writable by its mount, and the shipped build-tool does not list it.
TEST_F(Attack, NothingIsWrittenElsewhere) {
    const std::vector<std::string> command = {"sh", "-c", "echo x >/dev/shm/dropper && echo wrote"};
    const Ran ran = Enforced("build-tool", command);
    EXPECT_THAT(ran.out, Not(HasSubstr("wrote"))) << ran.Text();
    ExpectRefusedByUs(ran, "/dev/shm/dropper");
    // Before its effect, on both backends: under signal that is Landlock's domain being a narrow one.
    EXPECT_EQ(At(ran.Refusal("/dev/shm/dropper"), "outcome"), "prevented") << ran.Text();
    EXPECT_EQ(Observed("build-tool", command).out, "wrote\n");
    for (const char* path : {"/etc/x", "/usr/bin/x", "/in/x", "/x"}) {
        const Ran other = Enforced(
            "python-tool", {"python3", "-c", absl::StrCat("open('", path, "', 'w'); print('wrote')")});
        EXPECT_NE(other.status, 0) << path;
        EXPECT_THAT(other.out, Not(HasSubstr("wrote"))) << path;
        EXPECT_FALSE(other.Refusals().empty()) << path;
    }
}

TEST_F(Attack, NothingIsConnectedTo) {
    const std::string python =
        "import socket; print(socket.create_connection(('198.51.100.10', 8080), 10).recv(99).decode())";
    const std::vector<std::pair<std::string, std::vector<std::string>>> ways = {
        {"python-tool", {"python3", "-c", python}},
        {"networkless", {"python3", "-c", python}},
        {"shell-tool", {"bash", "-c", "exec 3<>/dev/tcp/198.51.100.10/8080 && cat <&3"}},
        {"node-tool",
         {"node", "-e",
          "require('net').connect(8080, '198.51.100.10').on('data', d => console.log(d + ''))"}},
    };
    for (const auto& [policy, command] : ways) {
        SCOPED_TRACE(policy);
        const Ran ran = Enforced(policy, command);
        EXPECT_NE(ran.status, 0) << ran.Text();
        EXPECT_THAT(ran.out, Not(HasSubstr("GREETING")));
        const Json event = ran.Refusal("198.51.100.10:8080");
        EXPECT_EQ(At(event, "outcome"), "prevented") << ran.Text();
        EXPECT_EQ(At(event, "lock"), "bpf");
        const Ran control = Observed(policy, command);
        EXPECT_THAT(control.out, HasSubstr("GREETING")) << control.Text();
    }
}

TEST_F(Attack, ProgramsBesideTheListAreNotRun) {
    // What each tool may start is in its policy's comments; these are what an injected script wants.
    const std::vector<std::pair<std::string, std::vector<std::string>>> ways = {
        {"node-tool", {"sh", "-c", "bash -c 'echo ran'"}},
        {"node-tool",
         {"node", "-e",
          "console.log(require('child_process').execSync('python3 -c \"print(\\'ran\\')\"') + '')"}},
        {"build-tool", {"sh", "-c", "python3 -c 'print(\"ran\")'"}},
        {"shell-tool", {"sh", "-c", "cp /bin/echo /tmp/echo && /tmp/echo ran"}},
    };
    for (const auto& [policy, command] : ways) {
        SCOPED_TRACE(absl::StrCat(policy, ": ", command.back()));
        const Ran ran = Enforced(policy, command);
        EXPECT_NE(ran.status, 0) << ran.Text();
        EXPECT_THAT(ran.out, Not(HasSubstr("ran")));
        EXPECT_FALSE(ran.Refusals().empty());
        const Ran control = Observed(policy, command);
        EXPECT_THAT(control.out, HasSubstr("ran")) << control.Text();
    }
}

// Under `signal` an open is judged after its effect: outside every granted tree Landlock stands before it, although
// the base lists "/" itself.
TEST_F(Attack, AFileOutsideEveryGrantIsNotOpened) {
    const std::string policy =
        product_->Put("outside.yaml",
                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: outside}\nspec:\n"
                      "  exec: {allow: [\"/usr/bin/python3*\"]}\n  files: {read: [/usr/**]}\n  network: {}\n");
    const Ran ran = product_->Run(policy,
                                  {"python3", "-c",
                                   "import os\nprint(os.listdir('/') != [])\n"
                                   "try: print(open('/in/.ssh/id_rsa').read())\n"
                                   "except PermissionError: print('refused')"},
                                  {"--in", product_->Path("in")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "True\nrefused\n") << ran.Text();
    ExpectRefusedByUs(ran, "/in/.ssh/id_rsa");
}

}  // namespace
}  // namespace stockade::tests
