// dns2tcp in `stockade run`: a real tunnel through a real resolver. Each request type first carries a file intact
// where nothing stops it; with the same server, resolver and client, no byte of it arrives under enforcement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/dns/outside.h"
#include "tests/dns/receiver.h"
#include "tests/dns/unbound.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kZone[] = "dns2tcp.test";
constexpr int kServerPort = 5301, kReceiverPort = 9000;  // on the outside's loopback
constexpr size_t kFileBytes = 3000;

// Sends the file into the tunnel, and waits for the word that it came, or for the client's end.
constexpr char kClient[] =
    "import os, select, subprocess, sys\n"
    "p = subprocess.Popen(['dns2tcpc', *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,\n"
    "                     stderr=subprocess.STDOUT)\n"
    "try: os.write(p.stdin.fileno(), open('/in/file', 'rb').read())\n"
    "except BrokenPipeError: pass\n"
    "said = b''\n"
    "while b'RECEIVED' not in said and select.select([p.stdout], [], [], 60)[0]:\n"
    "    some = os.read(p.stdout.fileno(), 4096)\n"
    "    if not some: break\n"
    "    said += some\n"
    "p.kill()\n"
    "print(said.decode(errors='replace'))\n";

class Tunnels : public ::testing::TestWithParam<const char*> {
  protected:
    static void SetUpTestSuite() {
        product_ = new Product;
        // No line of a text: what the shell's or the tunnel's own words could be taken for.
        file_.clear();
        for (size_t i = 0; i < kFileBytes; ++i) file_.push_back(static_cast<char>(i * 2654435761u >> 13));
        product_->Put("in/file", file_);
        status_ = StartServers();
    }
    static void TearDownTestSuite() {
        delete receiver_;
        unbound_.reset();
        outside_.reset();
        delete product_;
    }
    static Status StartServers() {
        SK_ASSIGN_OR_RETURN(outside_, Outside::Create());
        SK_RETURN_IF_ERROR(outside_->Inside([]() -> Status {
            SK_ASSIGN_OR_RETURN(Fd listener, BoundTo("127.0.0.1", kReceiverPort, SOCK_STREAM));
            receiver_ = new Receiver(std::move(listener), kFileBytes);
            return absl::OkStatus();
        }));
        const std::string config = product_->Put(
            "dns2tcpd", absl::StrCat("listen = 127.0.0.1\nport = ", kServerPort, "\ndomain = ", kZone,
                                     "\nresources = file:127.0.0.1:", kReceiverPort, "\n"));
        const std::string log = product_->Path("dns2tcpd.log");
        outside_->Start({"/usr/bin/dns2tcpd", "-F", "-f", config, "-d", "3"}, log);
        if (!Until([&] { return absl::StrContains(ServerLog(), "Starting Server"); }))
            return absl::UnavailableError("dns2tcpd (./dev setup installs it) does not start: " +
                                          ServerLog());
        SK_ASSIGN_OR_RETURN(unbound_, Unbound::Start({.address = Outside::kAddress,
                                                      .port = 53,
                                                      .stubs = {{kZone, kServerPort}},
                                                      .in_child = outside_->Entry()}));
        return absl::OkStatus();
    }
    static std::string ServerLog() {
        return product_->Get("dns2tcpd.log") + product_->Get("dns2tcpd.log.err");
    }
    // Each client begins with one of these. Others the resolver may still repeat for the client before.
    static size_t Clients() {
        return std::vector<std::string>(absl::StrSplit(ServerLog(), "for domain =auth.")).size() - 1;
    }
    void SetUp() override { ASSERT_TRUE(status_.ok()) << status_; }

    static Ran Tunnel(const std::string& spec, const std::vector<std::string>& resolver) {
        const std::string policy = product_->Put(
            "policy.yaml",
            absl::StrCat(
                "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: tunnel}\nspec:\n",
                "  violation: deny\n  exec: {allow: [/usr/**], libraries: [/usr/**]}\n"
                "  files: {read: [/**]}\n  network: {allow: []}\n  record: {dns: all}\n",
                spec));
        std::vector<std::string> command = {"python3", "-c", kClient, "-z", kZone,     "-r",
                                            "file",    "-l", "-",     "-T", GetParam()};
        command.insert(command.end(), resolver.begin(), resolver.end());
        return product_->Run(policy, command, {"--in", product_->Path("in")});
    }
    static inline Product* product_;
    static inline std::unique_ptr<Outside> outside_;
    static inline std::unique_ptr<Unbound> unbound_;
    static inline Receiver* receiver_;
    static inline std::string file_;
    static inline Status status_;
};

TEST_P(Tunnels, OfDns2tcpCarriesNothing) {
    const std::string dns = absl::StrCat("  dns: {mode: open, resolvers: [", Outside::kAddress, "]}\n");
    // Past the stub, which takes no query that is not canonical, also where the policy only observes.
    const Ran control = Tunnel("  mode: observe\n" + dns, {Outside::kAddress});
    EXPECT_THAT(control.out, HasSubstr("RECEIVED")) << control.Text() << ServerLog();
    EXPECT_EQ(receiver_->Take(), file_) << "intact where nothing stops it";
    const size_t clients = Clients();
    EXPECT_GE(clients, 1u) << ServerLog();

    const Ran ran = Tunnel(dns, {});  // by /etc/resolv.conf: the stub
    EXPECT_THAT(ran.out, Not(HasSubstr("RECEIVED"))) << ran.Text();
    EXPECT_EQ(receiver_->Take(), "");
    EXPECT_EQ(Clients(), clients) << "no query leaves";
    std::string told;
    for (const Json& event : ran.events) {
        const std::string name = At(event, "dns.name"), fault = At(event, "dns.fault");
        if (absl::EndsWith(name, kZone) && !fault.empty()) told = absl::StrCat(name, ": ", fault);
    }
    EXPECT_NE(told, "") << ran.Text();
    // Nor straight to the resolver.
    const Ran straight = Tunnel(dns, {Outside::kAddress});
    EXPECT_THAT(straight.out, Not(HasSubstr("RECEIVED"))) << straight.Text();
    EXPECT_EQ(receiver_->Take(), "");
    EXPECT_EQ(Clients(), clients);
    std::cout << GetParam() << ": " << file_.size()
              << " bytes arrive under observe, 0 under enforcement; refused: " << told << "\n";
}

INSTANTIATE_TEST_SUITE_P(Types, Tunnels, ::testing::Values("TXT", "KEY"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace stockade::tests
