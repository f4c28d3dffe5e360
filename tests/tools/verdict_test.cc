// What a verdict does to those it is not about: kill-process ends the process and nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {


// The denied file lies inside what Landlock grants, so that the verdict is BPF's on both backends.
constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: verdict}\n"
    "spec:\n  mode: MODE\n  violation: VIOLATION\n"
    "  exec: {allow: [/bin/sh, /bin/bash, /bin/sleep, /bin/cat]}\n"
    "  files: {read: [/usr/**, /in/**], write: [/tmp/**], deny: [/in/secret]}\n"
    "  network: {allow: []}\n";

// Each attack in a process of its own; the shell and the sleeper have done nothing.
constexpr char kScript[] =
    "/bin/sleep 1000 & sleeper=$!\n"
    "/usr/bin/id >/dev/null; echo exec $?\n"
    "/bin/cat /in/secret; echo file $?\n"
    "/bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/4243' 2>/dev/null; echo network $?\n"
    "kill -0 $sleeper && echo the sleeper lives; kill $sleeper\n";

class Verdict : public ::testing::Test {
  protected:
    Verdict() {
        product_.Put("in/secret", "PRIVATE\n");
    }
    std::string Policy(const std::string& mode, const std::string& violation) {
        return product_.Put("policy.yaml",
                            absl::StrReplaceAll(kPolicy, {{"MODE", mode}, {"VIOLATION", violation}}));
    }
    std::vector<std::string> In() { return {"--in", product_.Path("in")}; }
    Product product_;
};

TEST_F(Verdict, KillProcessEndsTheProcessAlone) {
    const Ran ran = product_.Run(Policy("enforce", "kill-process"), {"/bin/sh", "-c", kScript}, In());
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "exec 137\nfile 137\nnetwork 137\nthe sleeper lives\n") << ran.Text();
    const std::vector<std::string> refusals = ran.Refusals();
    for (const char* kind : {"exec", "file", "net"}) {
        EXPECT_TRUE(std::any_of(refusals.begin(), refusals.end(),
                                [&](const std::string& refusal) {
                                    return absl::StartsWith(refusal, kind) &&
                                           absl::StrContains(refusal, "kill-process") &&
                                           absl::StrContains(refusal, "bpf");
                                }))
            << kind << "\n"
            << ran.Text();
    }
    for (const Json& event : ran.events) EXPECT_NE(At(event, "lifecycle.op"), "condemned");
}

TEST_F(Verdict, ControlNothingDiesUnderObserve) {
    const Ran ran = product_.Run(Policy("observe", "kill-process"), {"/bin/sh", "-c", kScript}, In());
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "exec 0\nPRIVATE\nfile 0\nnetwork 1\nthe sleeper lives\n") << ran.Text();
}

}  // namespace
}  // namespace stockade::tests
