// The whole way: sandboxes of `stockade run`, the agent, its spool and a real Apache Kafka, while broker and agent are killed.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <unordered_set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/events/broker.h"
#include "tests/tools/product.h"
#include "userspace/base/clock.h"
#include "userspace/model/json.h"

namespace stockade::testing_events {
namespace {

using testing::HasSubstr;
using tests::Until;

constexpr const char* kClasses[] = {"process", "file", "network", "dns", "findings", "lifecycle", "audit"};
constexpr int kSandboxes = 50;
constexpr int kRounds = 40;
constexpr int kOpens = 100;  // a round; with 50 sandboxes 200,000
// Each test of the machine's speed waits so long, not shorter: the events are counted, not the time.
constexpr int kPatience = 240;

// All that is read is recorded; a word of the host's is refused, or would be.
constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: reader}\nspec:\n  mode: observe\n"
    "  exec: {allow: [/usr/**, /bin/**]}\n  files: {read: [/usr/**, /lib/**, /dev/**], write: [/dev/**]}\n"
    "  network: {allow: []}\n  record: {files: all}\n";

// A round: reads, one that would be refused, a process, a word that it is done. With a pause: the ring holds 12,000 such records,
// and from the agent's death to the next one's first look five seconds may go by here. So some 2,000 events a second.
constexpr char kScript[] =
    "r=0\nwhile [ $r -lt ROUNDS ]; do\n"
    "  i=0; while [ $i -lt OPENS ]; do : </usr/bin/env; i=$((i+1)); done\n"
    "  : </etc/passwd; /bin/true\n"
    "  r=$((r+1)); echo round $r; /bin/sleep 3\n"
    "done\n";

class AgentEvents : public testing::Test {
  protected:
    void SetUp() override {
        auto broker = Broker::Start();
        ASSERT_TRUE(broker.ok()) << broker.status();
        broker_ = *std::move(broker);
        for (const char* name : kClasses) {
            const Status status = broker_->CreateTopic(absl::StrCat("node.", name), 3);
            ASSERT_TRUE(status.ok()) << status;
        }
        product_ = std::make_unique<tests::Product>(absl::StrCat(
            "agent_wait_seconds: 60\nevents:\n  spool: {max_bytes: 1073741824}\n  exporters:\n"
            "    - {kind: kafka, hostport: \"", broker_->hostport(), "\", topic: node}\n"));
        policy_ = product_->Put("reader.yaml", kPolicy);
    }
    pid_t StartSandbox(int i, int rounds) {
        const std::string script =
            absl::StrReplaceAll(kScript, {{"ROUNDS", absl::StrCat(rounds)}, {"OPENS", absl::StrCat(kOpens)}});
        // Two share a session, as the calls of one do.
        return product_->StartStockade({"run", "--policy", policy_, "--session", absl::StrCat("session-", i / 2), "--", "/bin/sh",
                                        "-c", script},
                                       Tag(i));
    }
    static std::string Tag(int i) { return absl::StrCat("s", i); }
    // Half of them have done so many rounds.
    bool AwaitRound(int round) {
        const std::string word = absl::StrCat("round ", round, "\n");
        return Until(
            [&] {
                int there = 0;
                for (int i = 0; i < kSandboxes; ++i)
                    there += absl::StrContains(product_->Get(Tag(i) + ".out"), word);
                return 2 * there >= kSandboxes;
            },
            kPatience);
    }
    // The sandboxes whose seal has arrived.
    bool AwaitSeals(int wanted) {
        return Until(
            [&] {
                const auto read = broker_->Read("node.lifecycle");
                std::set<std::string> sealed;
                if (!read.ok()) return false;
                for (const auto& message : *read) {
                    if (!absl::StrContains(message.value, "\"kind\":\"seal\"")) continue;
                    const auto event = model::FromJsonLine(message.value);
                    if (event.ok()) sealed.insert(event->sandbox().id());
                }
                return static_cast<int>(sealed.size()) >= wanted;
            },
            kPatience);
    }
    // A file for each topic, as whoever audits has them.
    void Consume() {
        std::unordered_set<std::string> seen;
        for (const char* name : kClasses) {
            const auto read = broker_->Read(absl::StrCat("node.", name));
            ASSERT_TRUE(read.ok()) << read.status();
            files_.push_back(product_->Path(absl::StrCat(name, ".jsonl")));
            std::ofstream file(files_.back());
            for (const auto& message : *read) {
                ++messages_;
                file << message.value << "\n";
                // Of the node's own events, which have no sandbox, the node.
                const std::string session = Member(message.value, "session");
                EXPECT_EQ(message.key, session.empty() ? Member(message.value, "node") : session)
                    << message.value;
                if (absl::StrContains(message.value, "\"kind\":\"lost\"")) losses_.push_back(message.value);
                const bool again = absl::StrContains(message.headers, "stockade-again=true");
                again_ += again;
                const std::string chain = Member(message.value, "chain");
                ASSERT_EQ(chain.size(), 64u) << message.value;
                if (seen.insert(chain).second) continue;
                ++repeated_;
                EXPECT_TRUE(again) << "twice, and not marked: " << message.value;
            }
        }
    }
    // The first of that name; 200,000 events need not be parsed for it.
    static std::string Member(const std::string& json, absl::string_view name) {
        const std::string before = absl::StrCat("\"", name, "\":\"");
        const size_t at = json.find(before);
        if (at == json.npos) return "";
        return json.substr(at + before.size(), json.find('"', at + before.size()) - at - before.size());
    }
    // The lines of one sandbox, in files of the same names.
    std::vector<std::string> Of(const std::string& sandbox) {
        std::vector<std::string> files;
        for (const std::string& path : files_) {
            files.push_back(path + ".one");
            std::ofstream file(files.back());
            for (const absl::string_view line : absl::StrSplit(tests::ReadText(path), '\n', absl::SkipEmpty()))
                if (absl::StrContains(line, sandbox)) file << line << "\n";
        }
        return files;
    }
    tests::Ran Verify(const std::vector<std::string>& files) {
        std::vector<std::string> words = {"verify"};
        words.insert(words.end(), files.begin(), files.end());
        return product_->Stockade(words);
    }
    static int Lines(const std::string& text, absl::string_view start) {
        int count = 0;
        for (const absl::string_view line : absl::StrSplit(text, '\n')) count += absl::StartsWith(line, start);
        return count;
    }

    std::unique_ptr<Broker> broker_;
    std::unique_ptr<tests::Product> product_;  // ends before the broker
    std::string policy_;
    std::vector<std::string> files_;
    uint64_t messages_ = 0, again_ = 0, repeated_ = 0;
    std::vector<std::string> losses_;
};

TEST_F(AgentEvents, TwoKillsOfTheBrokerAndOneOfTheAgentLoseNothing) {
    std::vector<pid_t> clients;
    const uint64_t begin = BootNow();
    for (int i = 0; i < kSandboxes; ++i) clients.push_back(StartSandbox(i, kRounds));
    ASSERT_TRUE(AwaitRound(kRounds / 5));
    broker_->Kill();
    ASSERT_TRUE(AwaitRound(2 * kRounds / 5)) << "work goes on without it";
    ASSERT_TRUE(broker_->Restart().ok());
    const pid_t before = product_->AgentPid();
    ASSERT_NE(before, 0);
    ASSERT_EQ(product_->Sandboxes().size(), size_t{kSandboxes});
    const uint64_t killed = BootNow();
    product_->StopAgent(SIGKILL);
    ASSERT_NE(product_->AwaitAgent(before), 0) << "a client starts the next";
    const uint64_t next = BootNow();
    ASSERT_TRUE(AwaitRound(3 * kRounds / 5));
    broker_->Kill();
    ASSERT_TRUE(broker_->Restart().ok());
    for (int i = 0; i < kSandboxes; ++i) {
        const tests::Ran ran = product_->Finish(clients[i], Tag(i));
        EXPECT_EQ(ran.status, 0) << i << ran.err;
        EXPECT_THAT(ran.out, HasSubstr(absl::StrCat("round ", kRounds, "\n"))) << i;
    }
    const uint64_t worked = BootNow();
    EXPECT_TRUE(AwaitSeals(kSandboxes));
    const uint64_t sealed = BootNow();
    product_->StopAgent(SIGTERM);
    Consume();
    const tests::Ran ran = product_->Stockade({"verify", "--kafka", broker_->hostport(), "--topic-prefix", "node"});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err << product_->Get("run/agent.log");
    EXPECT_EQ(Lines(ran.out, "complete"), kSandboxes) << ran.out;
    EXPECT_THAT(losses_, testing::IsEmpty());
    EXPECT_GE(messages_, uint64_t{kSandboxes} * kRounds * kOpens);
    printf("[  FIGURE  ] the next agent answers %.2f s after the kill\n", static_cast<double>(next - killed) / 1e9);
    printf("[  FIGURE  ] %d sandboxes, %llu messages in %.1f s, sealed %.1f s later; %llu marked as again, %llu of them twice\n",
           kSandboxes, static_cast<unsigned long long>(messages_), static_cast<double>(worked - begin) / 1e9,
           static_cast<double>(sealed - worked) / 1e9, static_cast<unsigned long long>(again_),
           static_cast<unsigned long long>(repeated_));

    // Control: of one sandbox, whole, and with an event less.
    const std::string sandbox = Member(tests::ReadText(files_[1]), "id").substr(0, 30);
    std::vector<std::string> one = Of(sandbox);
    EXPECT_EQ(Verify(one).status, 0) << sandbox;
    std::string text = tests::ReadText(one[1]);
    const size_t from = text.find('\n', text.size() / 2) + 1;
    text.erase(from, text.find('\n', from) + 1 - from);
    tests::WriteText(one[1], text);
    const tests::Ran control = Verify(one);
    EXPECT_EQ(control.status, 1) << control.out;
    EXPECT_THAT(control.out, testing::AllOf(HasSubstr("FAULTY"), HasSubstr("1 missing")));
}

}  // namespace
}  // namespace stockade::testing_events
