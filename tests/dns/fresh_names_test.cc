// A name's address is open before its caller can know it: 1,000 names that nobody asked for before, each at an address
// that was shut until then, and no client that tries twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/dns/clients_fixture.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;

class FreshNames : public DnsClients {
  protected:
    // In a sandbox of 250 names no address is shared, so none is open by another name.
    static constexpr int kRuns = 4, kNames = kFreshNames / kRuns;
    static_assert(kNames <= World::kLastHost - World::kFirstHost + 1);

    static void ExpectAll(int run, const std::string& script) {
        // As much as these names need; what is usual lets some tens of them pass (below).
        const std::string policy = Policy("fresh", "*.fresh.test", ", budget: {zone: none, total: none}");
        const Ran ran = Bash(
            policy, absl::StrCat("first=", run * kNames, " last=", run * kNames + kNames - 1, "\n", script));
        EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '2'), kNames) << ran.Text();
        EXPECT_THAT(ran.out, ::testing::MatchesRegex("(2\n)*")) << ran.Text();
    }
};

// Two of the runs: a process for each name.
constexpr char kOneByOne[] =
    "for ((i = first; i <= last; i++)); do\n"
    "    curl -sS -o /dev/null --max-time 60 -w '%{http_code}\\n' http://n$i.fresh.test/ | cut -c1\n"
    "done\n";
// The others: 50 at once in one process, each for A and AAAA, as package managers do.
constexpr char kAtOnce[] =
    "curl -sS -Z --parallel-max 50 -o /dev/null --max-time 240 -w '%{http_code}\\n' "
    "\"http://n[$first-$last].fresh.test/\" | cut -c1\n";

TEST_F(FreshNames, OneByOneAtTheFirstTry) {
    ExpectAll(0, kOneByOne);
    ExpectAll(1, kOneByOne);
}

TEST_F(FreshNames, ManyAtOnceAtTheFirstTry) {
    ExpectAll(2, kAtOnce);
    ExpectAll(3, kAtOnce);
}

// 60 addresses at 60 ports take the agent milliseconds to open. A client that waits for the answer's first byte with a socket
// in its hand, and takes the address that stands last, meets an open one all the same.
constexpr char kAtOnceAtTheLast[] = R"py(/usr/bin/python3 -c '
import socket, struct
server = [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")][0]
name = b"".join(bytes([len(label)]) + label.encode() for label in "many.egress.test".split(".")) + b"\0"
opt = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
asking, taking = socket.socket(type=socket.SOCK_DGRAM), socket.socket()
asking.connect((server, 53))
asking.send(struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 1) + name + struct.pack(">HH", 1, 1) + opt)
asking.setblocking(False)
while True:
    try: answer = asking.recv(4096); break
    except BlockingIOError: pass
count, at = struct.unpack_from(">H", answer, 6)[0], 12 + len(name) + 4
last = answer[at + 16 * count - 4:at + 16 * count]
try: taking.connect((socket.inet_ntoa(last), 80)); print(count, "open")
except OSError as error: print(count, error)
')py";

TEST_F(FreshNames, TheLastOfManyAddressesIsOpenWhenTheAnswerComes) {
    const std::string policy = Policy("many", "many.egress.test", "", "80, 2001-2059");
    for (int i = 0; i < 5; ++i) {
        const Ran ran = Bash(policy, kAtOnceAtTheLast);
        EXPECT_EQ(ran.out, "60 open\n") << ran.Text();
    }
}

// The control: the same addresses without their names.
TEST_F(FreshNames, AddressesWithoutTheirNamesAreShut) {
    const Ran ran =
        Bash(Policy("bare", "*.fresh.test"),
             "curl -sS http://n7.fresh.test/; curl -sS -o /dev/null http://198.51.100.9/; echo $?\n"
             "for i in 2 10 100 200 254; do curl -s http://198.51.100.$i/; echo $?; done\n");
    EXPECT_EQ(ran.out, "hello\n0\n7\n7\n7\n7\n7\n") << ran.Text();
    EXPECT_THAT(ran.Refusals(), Contains(HasSubstr("198.51.100.254:80, deny")));
}

// A wildcard is a zone like others: it has the budget of one.
TEST_F(FreshNames, AWildcardPaysForItsNames) {
    const Ran ran =
        Bash(Policy("paid", "*.fresh.test"), absl::StrCat("first=0 last=", kNames - 1, "\n", kOneByOne));
    const auto passed = std::count(ran.out.begin(), ran.out.end(), '2');
    std::cout << "names of a wildcard within 256 B: " << passed << "\n";
    RecordProperty("names", static_cast<int>(passed));
    EXPECT_GE(passed, 20) << ran.Text();
    EXPECT_LE(passed, 256) << ran.Text();
    EXPECT_LT(passed, kNames) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("dns.zone_budget"));
}

}  // namespace
}  // namespace stockade::tests
