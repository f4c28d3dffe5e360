// Secrets that a real sandbox has in arguments, environment, names of files and names that it asks for are in nothing that leaves the
// agent: exporter, spool, log, stream, result.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"
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
        product_->Configure(absl::StrCat("events:\n  exporters:\n    - {kind: jsonl, path: ", product_->Path("events.jsonl"),
                                         "}\n    - {kind: jsonl, name: ocsf, format: ocsf, path: ", product_->Path("ocsf.jsonl"), "}\n"));
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
    std::unique_ptr<tests::Product> product_;
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
    product_->StopAgent(SIGTERM);
    const std::string outputs = Outputs(ran);
    // The control: what stands beside them is there, in each of the places.
    for (const char* canary : {"canary-argument", "canary-environment", "canary-file", "canary-name"})
        EXPECT_TRUE(absl::StrContains(outputs, canary)) << canary;
    EXPECT_TRUE(absl::StrContains(outputs, "[redacted]"));
    for (const PlantedSecret& planted : secrets) {
        const size_t at = outputs.find(absl::AsciiStrToLower(planted.secret));
        EXPECT_EQ(at, outputs.npos) << planted.pattern << ": ..." << outputs.substr(at - std::min<size_t>(at, 300), 600);
    }
}

}  // namespace
}  // namespace stockade::testing_events
