// Secrets that a real sandbox has in arguments, environment, names of files and names that it asks for are in nothing that leaves the
// agent: exporter, spool, log, stream, result.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/events/otlp_receiver.h"
#include "tests/tools/free_port.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"
#include "userspace/decode/redact_secrets.h"

namespace stockade::testing_events {
namespace {

using decode::PlantedSecret;
using tests::Until;

constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: leaky}\nspec:\n  mode: observe\n"
    "  exec: {allow: [/usr/bin/true]}\n  files: {read: [/usr/bin/true], write: [/dev/null]}\n"
    "  network: {allow: []}\n  dns: {allow: [allowed.example]}\n  record: {exec: all, files: all, network: all}\n";

// A word for a shell, whatever is in it.
std::string Quoted(absl::string_view text) {
    std::string out = "'";
    for (const char c : text) c == '\'' ? out.append("'\\''") : out.append(1, c);
    return out + "'";
}

// One that a file's name and a label can be: no slash, no white space.
bool IsWord(const std::string& secret) {
    return secret.size() <= 60 && secret.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == secret.npos;
}

class Leaks : public testing::Test {
  protected:
    void SetUp() override {
        product_ = std::make_unique<tests::Product>();
        port_ = tests::FreePort();
        product_->Configure(absl::StrCat("metrics: {listen: \"127.0.0.1:", port_, "\"}\nevents:\n  exporters:\n    - {kind: jsonl, path: ",
                                         product_->Path("events.jsonl"), "}\n    - {kind: jsonl, name: ocsf, format: ocsf, path: ",
                                         product_->Path("ocsf.jsonl"), "}\n    - {kind: otlp, endpoint: \"", receiver_.url(), "\"}\n"));
    }
    // What of the installation is not what we wrote ourselves, without regard to case.
    std::string Outputs(const tests::Ran& ran) {
        std::string all = ran.err;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(product_->dir())) {
            const std::string path = entry.path();
            if (entry.is_regular_file() && !absl::EndsWith(path, "leak.sh") && !absl::EndsWith(path, ".yaml")) all += tests::ReadText(path);
        }
        return absl::AsciiStrToLower(all);
    }
    // All that the receiver of OTLP got, names and values.
    std::string Received() {
        std::string all;
        for (const otlp::LogRecord& record : receiver_.records()) all += record.SerializeAsString();
        return absl::AsciiStrToLower(all);
    }
    static void ExpectNone(const std::string& outputs, const char* where) {
        for (const PlantedSecret& planted : decode::PlantedSecrets()) {
            const size_t at = outputs.find(absl::AsciiStrToLower(planted.secret));
            EXPECT_EQ(at, outputs.npos) << where << ": " << planted.pattern << ": ..." << outputs.substr(at - std::min<size_t>(at, 300), 600);
        }
    }
    OtlpReceiver receiver_;
    int port_ = 0;
    std::unique_ptr<tests::Product> product_;  // ends before the receiver
};

TEST_F(Leaks, APlantedSecretOfARealSandboxIsInNoOutput) {
    const std::vector<PlantedSecret> secrets = decode::PlantedSecrets();
    std::string script = "set +e\n";
    std::set<std::string> kinds, in_names;
    for (const PlantedSecret& planted : secrets) {
        kinds.insert(planted.pattern);
        const std::string text = Quoted(planted.text);
        absl::StrAppend(&script, "/usr/bin/true ", text, " canary-argument\n");
        absl::StrAppend(&script, "/usr/bin/env X=", text, " /usr/bin/true canary-environment\n");
        if (planted.text != planted.secret || !IsWord(planted.secret)) continue;
        in_names.insert(planted.pattern);
        absl::StrAppend(&script, "true 2>/dev/null </tmp/", planted.secret, "\ntrue 2>/dev/null >/tmp/", planted.secret, ".canary-file\n");
        absl::StrAppend(&script, "/usr/bin/getent hosts ", absl::AsciiStrToLower(planted.secret), ".canary-name.example\n");
    }
    ASSERT_GE(kinds.size(), 20u);
    ASSERT_GE(in_names.size(), 10u);
    absl::StrAppend(&script, "echo through\n");
    const std::string policy = product_->Put("leaky.yaml", kPolicy);
    const tests::Ran ran = product_->Run(policy, {"/bin/sh", "-c", script});
    EXPECT_THAT(ran.out, testing::HasSubstr("through")) << ran.Text().substr(0, 2000);
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_->Get("events.jsonl"), "\"kind\":\"seal\""); }));
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_->Get("ocsf.jsonl"), "seal"); }));
    ASSERT_TRUE(Until([&] { return absl::StrContains(Received(), "\"kind\":\"seal\""); }));
    product_->StopAgent(SIGTERM);
    const std::string outputs = Outputs(ran);
    // The control: what stands beside them is there, in each of the places.
    for (const char* canary : {"canary-argument", "canary-environment", "canary-file", "canary-name"})
        EXPECT_TRUE(absl::StrContains(outputs, canary)) << canary;
    EXPECT_TRUE(absl::StrContains(outputs, "[redacted]"));
    ExpectNone(outputs, "files");
    const std::string received = Received();
    for (const char* canary : {"canary-argument", "canary-environment", "canary-file", "canary-name"})
        EXPECT_TRUE(absl::StrContains(received, canary)) << canary;
    ExpectNone(received, "otlp");
}

// Those that the sandbox is started with, and has in the arguments of what runs: answers of the socket, lists, metrics, state files.
TEST_F(Leaks, APlantedSecretOfARunningCommandIsInNoAnswer) {
    const std::vector<PlantedSecret> secrets = decode::PlantedSecrets();
    const std::string wait = "while ! [ -e /in/stop ]; do sleep 0.1; done";
    // Each in a process of its own as well: command lines are shown up to a bound.
    std::vector<std::string> command = {"/bin/sh", "-c", "for x; do /bin/sh -c '" + wait + "' canary-child \"$x\" & done; echo up; wait", "canary-command"};
    for (const PlantedSecret& planted : secrets) command.push_back(planted.text);
    product_->Put("in/ready", "");
    const std::string policy = product_->Put("leaky.yaml", kPolicy);
    ASSERT_EQ(product_->Run("networkless", {"/bin/true"}).status, 0);  // starts the agent
    const pid_t follower = product_->StartStockade({"events", "--follow", "-o", "json"}, "followed");
    const pid_t run = product_->StartRun(policy, command, "long", {"--in", product_->Path("in")});
    ASSERT_TRUE(Until([&] { return product_->Get("long.out") == "up\n"; })) << product_->Get("long.err");
    std::string id, answers;
    ASSERT_TRUE(Until([&] {
        const std::string ps = product_->Stockade({"ps", "-o", "json"}).out;
        id = ps.substr(std::min(ps.size(), ps.find("sbx_")), 30);
        return !id.empty() && absl::StrContains(product_->Stockade({"inspect", id}).out, "canary-child");
    }));
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"ps"}, {"ps", "-o", "json"}, {"inspect", id}, {"inspect", id, "-o", "json"}, {"status"}, {"status", "-o", "json"}}) {
        const tests::Ran ran = product_->Stockade(words);
        EXPECT_EQ(ran.status, 0) << words[0] << ran.err;
        answers += ran.out + ran.err;
    }
    tests::Command scrape{.argv = {"/usr/bin/curl", "-sS", absl::StrCat("http://127.0.0.1:", port_, "/metrics")}, .out = product_->Path("scrape.out"),
                          .err = product_->Path("scrape.err")};
    ASSERT_EQ(tests::Wait(tests::Start(scrape)), 0) << product_->Get("scrape.err");
    EXPECT_THAT(product_->Get("scrape.out"), testing::HasSubstr("stockade_"));
    answers += product_->Get("scrape.out");
    const tests::Ran killed = product_->Stockade({"kill", id, "--reason", "canary-reason " + secrets[0].text});
    EXPECT_EQ(killed.status, 0) << killed.err;
    const tests::Ran ran = product_->Finish(run, "long");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_->Get("followed.out"), "canary-reason"); }));
    kill(follower, SIGTERM);
    (void)tests::Wait(follower);
    product_->StopAgent(SIGTERM);
    answers = absl::AsciiStrToLower(answers);
    for (const char* canary : {"canary-command", "canary-child", "[redacted]"}) EXPECT_TRUE(absl::StrContains(answers, canary)) << canary;
    ExpectNone(answers, "answers");
    const std::string outputs = Outputs(ran);  // followed.out, results with the evidence of the kill, logs
    for (const char* canary : {"canary-child", "canary-reason"}) EXPECT_TRUE(absl::StrContains(outputs, canary)) << canary;
    ExpectNone(outputs, "files");
}

}  // namespace
}  // namespace stockade::testing_events
