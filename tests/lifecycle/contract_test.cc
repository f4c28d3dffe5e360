// `stockade run --contract`: what is refused before anything exists, approvals, and that what was approved is what runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/lifecycle/call.h"
#include "userspace/base/sha256.h"

namespace stockade::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace fs = std::filesystem;

void ExpectRefused(const Ran& ran, const std::string& code, const std::string& why) {
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "refused") << ran.Text();
    EXPECT_EQ(At(ran.result, "code"), code) << ran.Text();
    EXPECT_THAT(At(ran.result, "reason"), HasSubstr(why));
    EXPECT_THAT(ran.err, HasSubstr(why));
    EXPECT_EQ(ran.out, "");
}

// Answers a request of file:PATH as `decision`, by what it says itself.
void Decide(const std::string& path, const std::string& decision) {
    ASSERT_TRUE(Until([&] { return fs::exists(path + ".request"); }));
    const Json request = ParseJson(ReadText(path + ".request"));
    WriteText(path + ".new", absl::StrCat(R"({"id":")", At(request, "id"), R"(","digest":")", At(request, "digest"), R"(","decision":")", decision, R"(","by":"ann"})"));
    ASSERT_EQ(chmod((path + ".new").c_str(), 0600), 0);
    ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
}

TEST(Contract, OnlyWhatItDeclaresIsStarted) {
    Tool tool;
    ExpectRefused(tool.Call({"/etc/alternatives/x"}), "contract.command", "is not in command.allow");
    ExpectRefused(tool.Call({"/usr/../etc/x"}), "contract.command", "no plain absolute path");
    ExpectRefused(tool.Sh("echo forbidden"), "contract.argument", "deny_arguments");
    ExpectRefused(tool.Sh("true", {"--policy", "python-tool"}), "contract.flag", "--policy");
    ExpectRefused(tool.Sh("true", {"--bind", "/etc"}), "contract.flag", "--bind");
    ExpectRefused(tool.Sh("true", {"--rootfs", "/"}), "contract.flag", "--rootfs");
    ExpectRefused(tool.Sh("true", {"--timeout", "1h"}), "contract.flag", "--timeout");
    ExpectRefused(tool.Sh("true", {"--tool", "other"}), "contract.flag", "--tool");
    ExpectRefused(tool.Sh("true", {"--in", tool.in}), "contract.flag", "declares no inputs");
    EXPECT_EQ(tool.WhatExists(0), "");
    const Ran ran = tool.Sh("echo ran");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "ran\n");
    EXPECT_EQ(At(ran.result, "sandbox.tool"), "tool");
    EXPECT_EQ(At(ran.result, "contract.sha256"), Sha256Hex(tool.product.Get("contract.yaml")));
    EXPECT_EQ(At(ran.result, "contract.approval"), "");
    EXPECT_NE(tool.WhatExists(0), "");  // the same look sees what is there
}

TEST(Contract, TheKernelHasItsOwnWord) {
    Tool tool;
    if (FindProgram("perl").empty()) FAIL() << "perl is a part of every Debian";
    // Allowed by the contract, and not by the policy.
    const Ran ran = tool.Call({FindProgram("perl"), "-e", "print 1"});
    EXPECT_NE(ran.status, 0);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("perl"));
}

TEST(Contract, IsolationThatIsNotThereIsNoRun) {
    Tool tool("  runtime: runsc\n");
    const Ran ran = tool.Sh("echo ran");
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("runsc"));
    tool.WriteContract("  require: lsm\n");
    const Ran lsm = tool.Sh("echo ran");
    const Ran doctor = tool.product.Stockade({"status"});
    if (doctor.out.find("backend signal") != std::string::npos) {
        EXPECT_EQ(lsm.status, 125) << lsm.Text();
        EXPECT_EQ(lsm.out, "");
    } else {
        EXPECT_EQ(lsm.status, 0) << lsm.Text();
    }
    tool.product.Put("contract.yaml", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: tool}\nspec: {class: in-process}\n");
    ExpectRefused(tool.Sh("echo ran"), "contract.class", "in-process");
    EXPECT_THAT(tool.product.Sandboxes(), IsEmpty());
}

TEST(Contract, UntilItIsApprovedNothingExists) {
    Tool tool("  approval: {timeout: 60s}\n");
    const std::string answer = tool.product.Path("answer");
    const pid_t client = tool.Start({"sh", "-c", "echo ran"}, {"--approval", "file:" + answer, "--session", "s-1", "--cause", "prompt-7"}, "asked");
    ASSERT_TRUE(Until([&] { return fs::exists(answer + ".request"); }));
    const Json request = ParseJson(ReadText(answer + ".request"));
    EXPECT_EQ(At(request, "tool"), "tool");
    EXPECT_EQ(At(request, "session"), "s-1");
    EXPECT_EQ(At(request, "cause"), "prompt-7");
    for (int look = 0; look < 20; ++look) ASSERT_EQ(tool.WhatExists(client), "");
    Decide(answer, "allow");
    const Ran ran = tool.Finish(client, "asked");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "ran\n");
    EXPECT_EQ(At(ran.result, "contract.call_sha256"), At(request, "digest"));
    EXPECT_EQ(At(ran.result, "contract.approval.by"), "ann");
    EXPECT_NE(tool.WhatExists(client), "");
}

TEST(Contract, WithoutAYesNothingIsEverMade) {
    Tool tool("  approval: {timeout: 300ms}\n");
    ExpectRefused(tool.Sh("echo ran"), "approval.failed", "--approval");
    ExpectRefused(tool.Sh("echo ran", {"--approval", "file:" + tool.product.Path("answer")}), "approval.timeout", "which is a deny");
    ExpectRefused(tool.Sh("echo ran", {"--approval", "exec:sleep 1000"}), "approval.timeout", "which is a deny");
    ExpectRefused(tool.Sh("echo ran", {"--approval", "exec:echo yes"}), "approval.failed", "not approved");
    ExpectRefused(tool.Sh("echo ran", {"--approval", "unix:" + tool.product.Path("nobody")}), "approval.failed", "not approved");
    ExpectRefused(tool.Sh("echo ran", {"--approval", "maybe"}), "approval.failed", "file:PATH");
    EXPECT_EQ(tool.WhatExists(0), "");
    tool.WriteContract("  approval: {timeout: 60s}\n");
    const std::string answer = tool.product.Path("answer");
    const pid_t client = tool.Start({"sh", "-c", "echo ran"}, {"--approval", "file:" + answer}, "denied");
    Decide(answer, "deny");
    ExpectRefused(tool.Finish(client, "denied"), "approval.denied", "denied by ann");
    EXPECT_EQ(tool.WhatExists(client), "");
}

TEST(Contract, AnAnswerIsForOneCall) {
    Tool tool("  approval: {timeout: 2s}\n");
    const std::string answer = tool.product.Path("answer");
    const pid_t first = tool.Start({"sh", "-c", "echo ran"}, {"--approval", "file:" + answer}, "first");
    Decide(answer, "allow");
    EXPECT_EQ(tool.Finish(first, "first").status, 0);
    ExpectRefused(tool.Sh("echo ran", {"--approval", "file:" + answer}), "approval.timeout", "deny");
}

TEST(Contract, WhatWasApprovedIsWhatRuns) {
    Tool tool("  approval: {timeout: 60s}\n  inputs: [{path: data.txt, max_size: 1KiB}]\n");
    const std::string answer = tool.product.Path("answer");
    const auto change = [&](const std::string& tag, const std::function<void()>& what) {
        WriteText(tool.in + "/data.txt", "as approved");
        fs::remove(answer);
        const pid_t client = tool.Start({"cat", "/in/data.txt"}, {"--approval", "file:" + answer, "--in", tool.in}, tag);
        EXPECT_TRUE(Until([&] { return fs::exists(answer + ".request"); }));
        what();
        Decide(answer, "allow");
        return tool.Finish(client, tag);
    };
    const Ran same = change("same", [] {});
    EXPECT_EQ(same.out, "as approved") << same.Text();
    for (const char* other : {"As approved", "as approved, and more", "short"}) {
        const Ran ran = change("changed", [&] { WriteText(tool.in + "/data.txt", other); });
        EXPECT_EQ(ran.status, 125) << ran.Text();
        EXPECT_EQ(ran.out, "");
        EXPECT_THAT(ran.err, HasSubstr("is not any more what it was"));
    }
    const Ran gone = change("gone", [&] { fs::remove(tool.in + "/data.txt"); });
    EXPECT_EQ(gone.status, 125) << gone.Text();
    const Ran link = change("link", [&] {
        WriteText(tool.in + "/other", "as approved");
        fs::remove(tool.in + "/data.txt");
        fs::create_symlink("other", tool.in + "/data.txt");
    });
    EXPECT_EQ(link.status, 125) << link.Text();
    EXPECT_TRUE(Until([&] { return tool.product.LeftOver().empty(); })) << tool.product.LeftOver();
}

TEST(Contract, APolicyThatChangedSinceIsNotUsed) {
    Tool tool;
    const std::string dir = tool.product.Path("policies.d");
    tool.product.Configure("policy_dirs: [" + dir + "]\n");
    const auto policy = [&](const std::string& more) {
        tool.product.Put("policies.d/named.yaml", "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: named}\nspec:\n  exec: {allow: [/usr/**, /bin/**]}\n  files: {read: [/usr/**, /bin/**" + more + "]}\n  network: {}\n");
    };
    policy("");
    tool.product.Put("contract.yaml", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: tool}\nspec:\n  class: sandbox\n  command: {allow: [/usr/**, /bin/**]}\n  policy: named\n  timeout: 60s\n  approval: {timeout: 60s}\n");
    const std::string answer = tool.product.Path("answer");
    for (const bool changed : {false, true}) {
        const pid_t client = tool.Start({"sh", "-c", "echo ran"}, {"--approval", "file:" + answer}, "named");
        EXPECT_TRUE(Until([&] { return fs::exists(answer + ".request"); }));
        if (changed) policy(", /etc/**");
        Decide(answer, "allow");
        const Ran ran = tool.Finish(client, "named");
        fs::remove(answer);
        EXPECT_EQ(ran.status, changed ? 125 : 0) << ran.Text();
        EXPECT_EQ(ran.out, changed ? "" : "ran\n");
        EXPECT_THAT(ran.err, HasSubstr(changed ? "is not here what the client has read" : ""));
    }
}

TEST(Contract, CheckAndExplain) {
    Tool tool;
    EXPECT_EQ(tool.product.Stockade({"contract", "check", tool.product.Path("contract.yaml")}).status, 0);
    const Ran strict = tool.product.Stockade({"contract", "check", "--strict", tool.product.Path("contract.yaml")});
    tool.product.Put("perl.yaml", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: perl}\nspec: {class: sandbox, command: {allow: [/usr/bin/perl]}, policy: tool.yaml, timeout: 1s}\n");
    const Ran perl = tool.product.Stockade({"contract", "check", "--strict", tool.product.Path("perl.yaml")});
    EXPECT_EQ(perl.status, 1);
    EXPECT_THAT(perl.err, HasSubstr("refuses it in the kernel"));
    tool.product.Put("bad.yaml", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: bad}\nspec: {class: sandbox}\n");
    EXPECT_EQ(tool.product.Stockade({"contract", "check", tool.product.Path("bad.yaml")}).status, 1);
    EXPECT_EQ(tool.product.Stockade({"contract", "explain", tool.product.Path("bad.yaml")}).status, 2);
    const Ran allowed = tool.product.Stockade({"contract", "explain", tool.product.Path("contract.yaml"), "sh", "-c", "true"});
    EXPECT_EQ(allowed.status, 0) << allowed.err;
    EXPECT_THAT(allowed.out, HasSubstr("may be started: /usr/bin/sh -c true"));
    EXPECT_EQ(tool.product.Stockade({"contract", "explain", tool.product.Path("contract.yaml"), "--", "sh", "-c", "true"}).out, allowed.out);
    const Ran refused = tool.product.Stockade({"contract", "explain", "-o", "json", tool.product.Path("contract.yaml"), "sh", "forbidden"});
    EXPECT_EQ(refused.status, 1);
    EXPECT_EQ(At(ParseJson(refused.out), "code"), "contract.argument");
    tool.product.Put("tools.json", R"({"tools":[{"name":"run_python"}]})");
    const Ran init = tool.product.Stockade({"contract", "init", "--mcp", tool.product.Path("tools.json")});
    EXPECT_EQ(init.status, 0) << init.err;
    tool.product.Put("init.yaml", init.out);
    EXPECT_EQ(tool.product.Stockade({"contract", "check", tool.product.Path("init.yaml")}).status, 0);
}

TEST(Contract, RenderGivesTheJobOfACallThatItAllows) {
    Tool tool;
    tool.product.Put("job.yaml", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: job}\nspec: {class: sandbox, command: {allow: [/usr/bin/python3]}, policy: python-tool, timeout: 1500ms, approval: required}\n");
    const auto render = [&](const std::string& image, const std::string& program) {
        return tool.product.Stockade({"contract", "render", tool.product.Path("job.yaml"), "--job", "--image", image, "--session", "s1", "--trace", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "--", program, "-c", "print(1)"});
    };
    const std::string image = absl::StrCat("registry.example/python@sha256:", std::string(64, 'a'));
    const Ran rendered = render(image, "/usr/bin/python3");
    EXPECT_EQ(rendered.status, 0) << rendered.err;
    EXPECT_THAT(rendered.out, HasSubstr("command: [\"/usr/bin/python3\", \"-c\", \"print(1)\"]"));
    EXPECT_THAT(rendered.out, HasSubstr("activeDeadlineSeconds: 2\n"));
    EXPECT_THAT(rendered.err, HasSubstr("approval"));
    const Ran refused = render(image, "/bin/sh");
    EXPECT_EQ(refused.status, 1);
    EXPECT_EQ(refused.out, "");
    EXPECT_EQ(render("registry.example/python:latest", "/usr/bin/python3").status, 2);
}

}  // namespace
}  // namespace stockade::tests
