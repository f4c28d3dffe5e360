// Real clients inside `stockade run`: what the policy names works with each of them at the first try, and the rest with none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/dns/clients_fixture.h"

namespace stockade::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Bash, with the host as $1: ends with 0 when the client had from it what it wanted.
struct Client {
    const char* name;
    const char* script;
};

constexpr char kRequests[] = R"sh(/usr/bin/python3 -c '
import sys, requests
assert requests.get("http://%s/" % sys.argv[1], timeout=20).text == "hello\n"' "$1")sh";

// resolve4 is c-ares, lookup and http the C library.
constexpr char kNode[] = R"sh(node -e '
const dns = require("dns").promises, host = process.argv[1];
(async () => {
    const [first] = await dns.resolve4(host), {address} = await dns.lookup(host, 4);
    if (first !== address) throw new Error(first + " is not " + address);
    const answer = await new Promise((done, failed) => require("http").get({host, family: 4, timeout: 20000}, done).on("error", failed));
    if (answer.statusCode !== 200) throw new Error(answer.statusCode);
})().catch(error => { console.error(error); process.exit(1); });' "$1")sh";

constexpr char kGit[] = R"sh(rm -rf /tmp/clone
GIT_TERMINAL_PROMPT=0 git -c safe.directory='*' clone -q "http://$1/repo.git" /tmp/clone && grep -qx 'by git' /tmp/clone/file)sh";

// Everything that apt writes stands below /tmp; its lists are read by nobody else. The package is fetched as well.
constexpr char kApt[] =
    R"sh(rm -rf /tmp/apt; mkdir -p /tmp/apt/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
touch /tmp/apt/status
echo "deb [trusted=yes] http://$1/apt ./" >/tmp/apt/etc/sources.list
cat >/tmp/apt/conf <<CONF
Dir::Etc "/tmp/apt/etc"; Dir::State "/tmp/apt/state"; Dir::State::status "/tmp/apt/status"; Dir::Cache "/tmp/apt/cache";
Dir::Log "/tmp/apt"; APT::Sandbox::User ""; Acquire::Retries "0"; APT::Update::Error-Mode "any"; Acquire::Languages "none";
CONF
export APT_CONFIG=/tmp/apt/conf
cd /tmp/apt && apt-get update && apt-get download stockade-probe && test -s stockade-probe_1_all.deb)sh";

constexpr Client kClients[] = {
    {"getent", R"sh(getent ahostsv4 "$1" | grep -q '^198\.51\.100\.')sh"},
    {"dig", R"sh(dig +tries=2 +time=5 +short "$1" | grep -q '^198\.51\.100\.')sh"},
    {"curl", R"sh(test "$(curl -sS --max-time 20 "http://$1/")" = hello)sh"},
    {"requests", kRequests},
    {"git", kGit},
    {"apt", kApt},
    {"node", kNode},
};

class EachClient : public DnsClients, public ::testing::WithParamInterface<Client> {
  protected:
    // "HOST yes" or "HOST no" for each.
    static Ran Try(const std::string& policy) {
        return Bash(policy, absl::StrCat("client() {\n", GetParam().script, "\n}\n",
                                         "for host in one.egress.test two.other.test; do\n"
                                         "    if (client $host) >/tmp/log 2>&1; then echo $host yes; else "
                                         "echo $host no; cat /tmp/log >&2; fi\n"
                                         "done\n"));
    }
};

// Under one policy the one name works and the other does not; under the other policy it is the other way round.
TEST_P(EachClient, HasTheNamesOfThePolicyAndNoOther) {
    PublishRepositories();
    size_t before = unbound_->Asked().size();
    const Ran one = Try(Policy("one", "*.egress.test"));
    EXPECT_EQ(one.out, "one.egress.test yes\ntwo.other.test no\n") << one.Text();
    EXPECT_THAT(AskedSince(before), Contains(HasSubstr("one.egress.test. A")));
    EXPECT_THAT(AskedSince(before), Not(Contains(HasSubstr("other.test"))));
    EXPECT_THAT(one.err, HasSubstr("the policy does not allow resolving"));
    before = unbound_->Asked().size();
    const Ran two = Try(Policy("two", "two.other.test"));
    EXPECT_EQ(two.out, "one.egress.test no\ntwo.other.test yes\n") << two.Text();
    EXPECT_THAT(AskedSince(before), Not(Contains(HasSubstr("egress.test"))));
}

INSTANTIATE_TEST_SUITE_P(All, EachClient, ::testing::ValuesIn(kClients),
                         [](const auto& info) { return std::string(info.param.name); });

// What the C library and c-ares make of answers that are not one address.
class Answers : public DnsClients {
  protected:
    static Ran Run(const std::string& script) { return Bash(Policy("answers", "*.egress.test"), script); }
};

TEST_F(Answers, ChainsOfEightAliasesAndNotOfNine) {
    const Ran ran =
        Run("curl -sS http://hop1.egress.test/; curl -sS http://hop8.egress.test/\n"
            "curl -s http://hop9.egress.test/; echo $?\n"
            "dig +short +tries=1 +time=20 hop8.egress.test | wc -l; dig +tries=1 +time=20 hop9.egress.test | "
            "grep -o 'status: [A-Z]*'\n"
            "curl -s http://hop0.cdn.test/; echo $?\n");  // the end of each chain has no name of the policy
    EXPECT_EQ(ran.out, "hello\nhello\n6\n9\nstatus: SERVFAIL\n6\n") << ran.Text();
}

// Names that live a second or less: asked and connected to again and again, for some of their lives. Ten times a second:
// each repeat costs its moment, and an unranked zone's budget has some hundreds of them.
TEST_F(Answers, AddressesOfShortLivesStayOpen) {
    const Ran ran = Run(R"sh(/usr/bin/python3 -c '
import socket, time
kept, rounds, end = socket.gethostbyname("ttl1.egress.test"), 0, time.monotonic() + 3
while time.monotonic() < end:
    for host in "ttl0.egress.test", "ttl1.egress.test", kept: socket.create_connection((host, 80), 20).close()
    rounds += 1
    time.sleep(0.1)
print("ok" if rounds > 1 else rounds)')sh");
    EXPECT_EQ(ran.out, "ok\n") << ran.Text();
}

// A plain answer of 60 addresses does not fit into 512 bytes: it comes over TCP, and each of them is open then.
TEST_F(Answers, SixtyAddressesAreAllOpen) {
    const Ran ran = Run(R"sh(/usr/bin/python3 -c '
import socket
found = {a[4][0] for a in socket.getaddrinfo("many.egress.test", 80, socket.AF_INET, socket.SOCK_STREAM)}
for address in found: socket.create_connection((address, 80), 20).close()
print(len(found))'
dig +noedns +tries=1 +time=20 many.egress.test | grep -c 'IN.A.198'
dig +noedns +tries=1 +time=20 many.egress.test | grep -o 'SERVER.*(TCP)' | grep -o TCP
curl -s http://198.51.100.200/; echo $?)sh");
    EXPECT_EQ(ran.out, "60\n60\nTCP\n7\n") << ran.Text();
}

// Truncated at the resolver, too: the stub asks it over TCP.
TEST_F(Answers, WhatTheResolverTruncatesArrivesWhole) {
    const size_t before = unbound_->Asked().size();
    const Ran ran =
        Run("dig +noedns +tries=1 +time=20 +short big.egress.test TXT | wc -c\n"
            "dig +bufsize=4096 +tries=1 +time=20 +short big.egress.test TXT | wc -c\n"
            "node -e 'require(\"dns\").resolveTxt(\"big.egress.test\", (error, texts) => console.log(error "
            "|| texts.flat().join(\"\").length))'\n");
    EXPECT_EQ(ran.out, "1827\n1827\n1800\n") << ran.Text();
    EXPECT_THAT(AskedSince(before), ElementsAre("big.egress.test. TXT IN", "big.egress.test. TXT IN"))
        << "once over UDP, once over TCP, and then the cache";
}

TEST_F(Answers, ANameThatDoesNotExistIsToldAsThat) {
    const Ran ran =
        Run("getent hosts gone.egress.test; echo $?\n"
            "dig +tries=1 +time=20 gone.egress.test | grep -o 'status: [A-Z]*'\n"
            "dig +tries=1 +time=20 one.egress.test MX | grep -o 'status: [A-Z]*'\n"
            "curl -s http://gone.egress.test/; echo $?\n"
            "node -e 'require(\"dns\").resolve4(\"gone.egress.test\", error => console.log(error.code))'\n");
    EXPECT_EQ(ran.out, "2\nstatus: NXDOMAIN\nstatus: NOERROR\n6\nENOTFOUND\n") << ran.Text();
}

// The sandbox's resolv.conf has no search list; a client may bring one, of suffixes that the policy names.
TEST_F(Answers, SearchListsFindWhatThePolicyNames) {
    const Ran ran = Run(
        "grep -c '^search' /etc/resolv.conf\n"
        "export LOCALDOMAIN='egress.test'\n"
        "getent ahostsv4 one | grep -c STREAM\n"
        "curl -sS http://one/\n"
        "RES_OPTIONS=ndots:5 curl -sS http://one.egress.test/\n"  // the list first, where it does not exist, then the name itself
        "getent hosts two; echo $?\n");
    EXPECT_EQ(ran.out, "0\n1\nhello\nhello\n2\n") << ran.Text();
}

// A query that does not leave ends the C library's search: what stands behind such a suffix is not tried.
TEST_F(Answers, ASuffixThatThePolicyDoesNotNameEndsTheSearch) {
    const size_t before = unbound_->Asked().size();
    const Ran ran =
        Run("LOCALDOMAIN='other.test egress.test' getent hosts two; echo $?\n"
            "LOCALDOMAIN='other.test egress.test' getent hosts one; echo $?\n"
            "LOCALDOMAIN='egress.test other.test' getent ahostsv4 one | grep -c STREAM\n");
    EXPECT_EQ(ran.out, "2\n2\n1\n") << ran.Text();
    EXPECT_THAT(AskedSince(before), Not(Contains(HasSubstr("other.test"))));
    EXPECT_THAT(ran.err, HasSubstr("the policy does not allow resolving one.other.test"));
}

// There is no route for IPv6: clients fall back to the other address.
TEST_F(Answers, AnAddressOfIpv6BesideOneOfIpv4) {
    const Ran ran =
        Run("dig +short +tries=1 +time=20 both.egress.test AAAA; getent ahostsv6 both.egress.test | grep -c "
            "'2001:db8::2 *STREAM'\n"
            "curl -sS http://both.egress.test/\n"
            "/usr/bin/python3 -c 'import requests; print(requests.get(\"http://both.egress.test/\").text, "
            "end=\"\")'\n"
            "node -e 'require(\"http\").get(\"http://both.egress.test/\", answer => "
            "console.log(answer.statusCode))'\n");
    EXPECT_EQ(ran.out, "2001:db8::2\n1\nhello\nhello\n200\n") << ran.Text();
}

// To sort the addresses of a name the C library, c-ares, Go and musl connect a UDP socket to each, at a port that nobody listens on,
// and ask from where it would send. That says nothing to anybody, and is no violation, however it is answered.
TEST_F(Answers, SortingAddressesIsNoViolation) {
    const std::string policy = Policy("sort", "*.egress.test");
    std::string text = ReadText(policy);
    text.replace(text.find("violation: deny"), 15, "violation: kill-sandbox");
    WriteText(policy, text);
    const std::string sort = R"sh(getent ahosts both.egress.test | grep -c STREAM
/usr/bin/python3 -c '
import socket, sys
for port in 0, 9, 65535:
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        try: s.connect(("198.51.100.200", port)); s.send(b"x"); print("sent")
        except OSError as error: print(error.strerror)'
curl -sS http://both.egress.test/
)sh";
    const Ran ran = Bash(policy, sort);
    EXPECT_EQ(ran.out,
              "2\nOperation not permitted\nOperation not permitted\nOperation not permitted\nhello\n")
        << ran.Text();
    EXPECT_THAT(ran.Refusals(), IsEmpty()) << ran.Text();
    // Another port, and a stream at one of these, are connections.
    for (const char* call : {"socket.socket(type=socket.SOCK_DGRAM).connect((\"198.51.100.200\", 10))",
                             "socket.create_connection((\"198.51.100.200\", 9))"}) {
        const Ran killed =
            Bash(policy, absl::StrCat("/usr/bin/python3 -c 'import socket; ", call, "'; echo lives"));
        EXPECT_EQ(killed.out, "") << killed.Text();
        EXPECT_EQ(At(killed.result, "end"), "policy") << killed.Text();
    }
}

// Of an answer with four addresses the one outside is open; the service of metadata and the networks within are not.
TEST_F(Answers, RebindingOpensNothing) {
    const Ran ran =
        Run("getent ahostsv4 mixed.egress.test | grep -c STREAM\n"
            "for address in 198.51.100.9 169.254.169.254 10.1.2.3 127.0.0.1; do\n"
            "    curl -s -o /dev/null --resolve mixed.egress.test:80:$address --max-time 20 "
            "http://mixed.egress.test/; echo $address $?\n"
            "done\n"
            "curl -s http://meta.egress.test/; echo $?\n");
    EXPECT_EQ(ran.out, "4\n198.51.100.9 0\n169.254.169.254 7\n10.1.2.3 7\n127.0.0.1 7\n7\n") << ran.Text();
    EXPECT_THAT(ran.Refusals(), Contains(HasSubstr("169.254.169.254:80, deny")));
    EXPECT_THAT(ran.Refusals(), Contains(HasSubstr("10.1.2.3:80, deny")));
    EXPECT_THAT(ran.Refusals(), Not(Contains(HasSubstr("198.51.100.9:80"))));
}

}  // namespace
}  // namespace stockade::tests
