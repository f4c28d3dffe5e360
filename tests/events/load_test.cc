// What a node does to its agent: many sandboxes that live for a moment, a follower that never reads, an agent that is stopped.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tools/product.h"
#include "userspace/api/channel.h"
#include "userspace/base/clock.h"
#include "userspace/model/json.h"

namespace stockade::testing_events {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::Until;

constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: reader}\nspec:\n"
    "  exec: {allow: [/usr/**, /bin/**]}\n  files: {read: [/usr/**, /bin/**, /lib/**, /dev/**, /in/**], "
    "write: [/dev/null]}\n"
    "  network: {allow: []}\n  record: {files: all}\n";
// Bytes of a file record, and of the ring for what is allowed: how many it holds.
constexpr uint64_t kRecordBytes = 1200, kRingBytes = 16 << 20, kRingRecords = kRingBytes / kRecordBytes;

class Load : public testing::Test {
  protected:
    Load() {
        product_.Put("in/ready", "");
        product_.Configure(absl::StrCat(
            "agent_wait_seconds: 60\nrules: {dirs: [", tests::SourcePath("rules/detections"),
            "]}\nevents:\n  exporters:\n    - {kind: jsonl, path: ", product_.Path("events.jsonl"),
            ", rotatebytes: 0}\n"));
        policy_ = product_.Put("reader.yaml", kPolicy);
    }
    pid_t StartSh(const std::string& tag, const std::string& script) {
        return product_.StartStockade({"run", "--policy", policy_, "--session", tag, "--in",
                                       product_.Path("in"), "--", "/bin/sh", "-c", script},
                                      tag);
    }
    int Seals() {
        int seals = 0;
        for (const absl::string_view line : absl::StrSplit(product_.Get("events.jsonl"), '\n'))
            seals += absl::StrContains(line, "\"kind\":\"seal\"");
        return seals;
    }
    std::vector<v1::Event> Events(const std::string& session) {
        std::vector<v1::Event> events;
        for (const absl::string_view line :
             absl::StrSplit(product_.Get("events.jsonl"), '\n', absl::SkipEmpty())) {
            if (!absl::StrContains(line, absl::StrCat("\"session\":\"", session, "\""))) continue;
            auto event = model::FromJsonLine(line);
            EXPECT_TRUE(event.ok()) << event.status();
            if (event.ok()) events.push_back(*std::move(event));
        }
        return events;
    }
    // KiB that are the agent's own.
    uint64_t AnonymousKib() {
        uint64_t kib = 0;
        for (const absl::string_view line :
             absl::StrSplit(tests::ReadText(absl::StrCat("/proc/", product_.AgentPid(), "/status")), '\n')) {
            const std::vector<absl::string_view> words =
                absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
            if (words.size() > 1 && words[0] == "RssAnon:") (void)absl::SimpleAtoi(words[1], &kib);
        }
        EXPECT_GT(kib, 0u);
        return kib;
    }
    tests::Product product_;
    std::string policy_;
};

// STOCKADE_SHORT_SANDBOXES=10000 makes as many.
TEST_F(Load, SandboxesOfAMomentAreAllComplete) {
    constexpr int kAtOnce = 8;
    int sandboxes = 200;
    if (const char* asked = getenv("STOCKADE_SHORT_SANDBOXES"); asked != nullptr) {
        ASSERT_TRUE(absl::SimpleAtoi(asked, &sandboxes) && sandboxes % kAtOnce == 0) << asked;
    }
    ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);  // starts the agent
    const uint64_t begin = BootNow();
    for (int i = 0; i < sandboxes; i += kAtOnce) {
        std::vector<pid_t> clients;
        for (int k = 0; k < kAtOnce; ++k)
            clients.push_back(
                product_.StartStockade({"run", "--session", absl::StrCat("short-", i + k), "--", "/bin/true"},
                                       absl::StrCat("c", k)));
        for (int k = 0; k < kAtOnce; ++k)
            EXPECT_EQ(product_.Finish(clients[static_cast<size_t>(k)], absl::StrCat("c", k)).status, 0);
    }
    ASSERT_TRUE(Until([&] { return Seals() == sandboxes + 1; }, 60)) << Seals();
    printf("[  FIGURE  ] %d sandboxes in %.1f s\n", sandboxes, static_cast<double>(BootNow() - begin) / 1e9);
    product_.StopAgent(SIGTERM);
    const tests::Ran ran = product_.Stockade({"verify", product_.Path("events.jsonl")});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    int complete = 0;
    for (const absl::string_view line : absl::StrSplit(ran.out, '\n'))
        complete += absl::StartsWith(line, "complete");
    EXPECT_EQ(complete, sandboxes + 1);
    EXPECT_EQ(product_.LeftOver(), "");
}

TEST_F(Load, AFollowerThatNeverReadsCostsNobodyAnEvent) {
    // Four times what is kept for one follower, as lines: it is full whatever an event weighs.
    constexpr uint64_t kBytes = 4 * (4 << 20);
    ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    StatusOr<api::Channel> slow = api::Channel::Connect(product_.Path("run/agent.sock"));
    ASSERT_TRUE(slow.ok()) << slow.status();
    api::Message question;
    question.mutable_events()->set_follow(true);
    ASSERT_TRUE(slow->Send(question).ok());
    const uint64_t before = AnonymousKib();
    const pid_t run =
        StartSh("noisy", "i=0; while ! [ -e /in/stop ]; do : </usr/bin/env; i=$((i+1)); done; echo $i");
    EXPECT_TRUE(
        Until([&] { return std::filesystem::file_size(product_.Path("events.jsonl")) > kBytes; }, 120));
    product_.Put("in/stop", "");
    const tests::Ran ran = product_.Finish(run, "noisy");
    uint64_t reads = 0;
    ASSERT_TRUE(absl::SimpleAtoi(ran.out, &reads)) << ran.out << ran.err;
    ASSERT_TRUE(Until([&] { return Seals() == 2; }, 60)) << Seals();
    EXPECT_LT(AnonymousKib(), before + (64 << 10)) << "what it does not read is kept for it";
    EXPECT_EQ(product_.Stockade({"ps"}).status, 0) << "others are answered";
    // Should it ever read, it is told of its hole.
    v1::Event told;
    while (!(told.has_lost() && told.lost().stage() == "client")) {
        StatusOr<api::Packet> packet = slow->Receive(10'000);
        ASSERT_TRUE(packet.ok()) << packet.status();
        ASSERT_TRUE(told.ParseFromString(packet->message.event_record().event()));
    }
    EXPECT_GT(told.lost().count(), 0u);
    const tests::Ran verify = product_.Stockade({"verify", product_.Path("events.jsonl")});
    EXPECT_EQ(verify.status, 0) << verify.out << verify.err;
    // Each read has its event, but for those beyond the sandbox's own rate, which its summary counts.
    uint64_t there = 0, rated = 0;
    for (const v1::Event& event : Events("noisy")) {
        there += event.has_file() && event.file().path() == "/usr/bin/env";
        if (event.has_summary()) rated = event.summary().suppressed();
    }
    EXPECT_EQ(there + rated, reads);
    printf("[  FIGURE  ] %llu reads: %llu events, %llu beyond the rate\n",
           static_cast<unsigned long long>(reads), static_cast<unsigned long long>(there),
           static_cast<unsigned long long>(rated));
}

// Stopped for as long as it takes to write several rings: what a minute is at 5,000 records a second is here a matter of how many come, for a
// ring that is full knows no time. Each further record is one more that is lost, with a number that it took before.
TEST_F(Load, AStoppedAgentTellsEachLostRecordAndLosesNoRefusal) {
    constexpr int kFlooders = 3, kRefusals = 300;
    constexpr uint64_t kReads = 4 * kRingRecords / kFlooders;
    const std::string wait = "echo ready; while ! [ -e /in/go ]; do /bin/sleep 0.05; done; ";
    const std::string leave = "; echo done; while ! [ -e /in/end ]; do /bin/sleep 0.05; done; echo over";
    std::map<std::string, pid_t> clients;
    for (int i = 0; i < kFlooders; ++i) {
        const std::string tag = absl::StrCat("flood-", i);
        clients[tag] = StartSh(tag, absl::StrCat(wait, "i=0; while [ $i -lt ", kReads,
                                                 " ]; do : </usr/bin/env; i=$((i+1)); done", leave));
    }
    clients["refused"] = StartSh(
        "refused", absl::StrCat(wait, "i=0; while [ $i -lt ", kRefusals,
                                " ]; do true >/dev/shm/dropper; i=$((i+1)); done 2>/dev/null", leave));
    const auto all_say = [&](const std::string& word) {
        return Until(
            [&] {
                for (const auto& client : clients)
                    if (!absl::StrContains(product_.Get(client.first + ".out"), word)) return false;
                return true;
            },
            120);
    };
    ASSERT_TRUE(all_say("ready\n"));
    const pid_t agent = product_.AgentPid();
    ASSERT_EQ(kill(agent, SIGSTOP), 0);
    const uint64_t stopped = BootNow();
    product_.Put("in/go", "");
    ASSERT_TRUE(all_say("done\n")) << "sandboxes wait for their agent";
    ASSERT_EQ(kill(agent, SIGCONT), 0);
    const double seconds = static_cast<double>(BootNow() - stopped) / 1e9;
    product_.Put("in/end", "");
    for (const auto& [tag, pid] : clients)
        EXPECT_EQ(product_.Finish(pid, tag).status, 0) << tag << product_.Get(tag + ".err");
    ASSERT_TRUE(Until([&] { return Seals() == kFlooders + 1; }, 120)) << Seals();
    EXPECT_EQ(product_.AgentPid(), agent) << "it was another that told of it";
    product_.StopAgent(SIGTERM);

    const tests::Ran verify = product_.Stockade({"verify", product_.Path("events.jsonl")});
    EXPECT_EQ(verify.status, 2) << verify.out;
    EXPECT_THAT(verify.out, Not(HasSubstr("FAULTY")));
    EXPECT_THAT(verify.out, Not(testing::ContainsRegex("open +[^ ]+ sbx_")));
    uint64_t read = 0, lost = 0;
    for (int i = 0; i < kFlooders; ++i) {
        for (const v1::Event& event : Events(absl::StrCat("flood-", i))) {
            read += event.has_file() && event.file().path() == "/usr/bin/env";
            if (event.has_lost()) lost += event.lost().count();
            // Beyond the sandbox's own rate: by number as well.
            if (event.has_summary()) lost += event.summary().suppressed();
        }
    }
    EXPECT_GT(lost, 2 * kRingRecords) << "the ring was not full: no test";
    EXPECT_GE(read + lost, kFlooders * kReads) << "each one is there, or told by number";
    uint64_t refusals = 0, findings = 0, steps = 0, repeats = 0;
    for (const v1::Event& event : Events("refused")) {
        refusals +=
            event.verdict() == "deny" && event.has_file() && event.file().path() == "/dev/shm/dropper";
        // Beyond so many a second they are counted: by events that stand for them, and what is left by the closing summary.
        if (event.has_summary()) repeats = event.summary().suppressed();
        findings += event.has_finding() && event.finding().rule() != "rules";
        steps += event.has_lifecycle();
    }
    EXPECT_EQ(refusals + repeats, uint64_t{kRefusals}) << "in a ring of their own";
    EXPECT_GT(findings, 0u);
    EXPECT_GE(steps, 4u);
    printf("[  FIGURE  ] stopped for %.1f s: %llu of %llu reads there, %llu told as lost\n", seconds,
           static_cast<unsigned long long>(read), static_cast<unsigned long long>(kFlooders * kReads),
           static_cast<unsigned long long>(lost));
}

}  // namespace
}  // namespace stockade::testing_events
