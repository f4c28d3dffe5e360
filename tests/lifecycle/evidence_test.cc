// Evidence on disk: what is in a folder, that its digests are right, who may read it, when it goes, and that the end of a sandbox is quick.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/lifecycle/call.h"
#include "userspace/base/sha256.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

std::string Dir(const Product& product) { return product.Path("evidence"); }

// One folder of the installation, by its sandbox.
std::string FolderOf(const Product& product, const std::string& id) {
    for (const auto& entry : fs::directory_iterator(Dir(product))) {
        if (entry.path().filename().string().find(id) != std::string::npos) return entry.path();
    }
    return "";
}

// Every file is in the manifest with its digest, and nothing else is there.
void ExpectWhole(const std::string& folder) {
    const std::string text = ReadText(folder + "/manifest.json");
    const Json manifest = ParseJson(text);
    EXPECT_EQ(At(manifest, "complete"), "true") << text;
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        struct stat info{};
        ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 07777, S_ISDIR(info.st_mode) ? 0700u : 0600u) << entry.path();
        if (!entry.is_regular_file() || entry.path().filename() == "manifest.json") continue;
        ++files;
        const std::string bytes = ReadText(entry.path());
        EXPECT_THAT(text, HasSubstr(absl::StrCat("{\"name\":\"", entry.path().lexically_relative(folder).string(), "\",\"bytes\":", bytes.size(), ",\"sha256\":\"", Sha256Hex(bytes), "\"}")));
    }
    size_t rows = 0;
    for (size_t at = 0; (at = text.find("\"sha256\"", at)) != std::string::npos; ++at) ++rows;
    EXPECT_EQ(rows, files) << text;
}

class Kept : public ::testing::Test {
  protected:
    Kept() { tool_.product.Configure(absl::StrCat("evidence:\n  dir: ", Dir(tool_.product), "\n")); }
    Tool tool_;
};

TEST_F(Kept, WhatWasDoneAndByWhichPolicy) {
    tool_.WriteContract("  outputs: {files: [{path: \"*.txt\", max_size: 1KiB}]}\n");
    const Ran ran = tool_.Sh("cat /etc/shadow; echo password=hunter2hunter2 >/out/a.txt; true", {"--out", tool_.out, "--session", "s-1", "--cause", "prompt-7"});
    EXPECT_EQ(At(ran.result, "end"), "exited") << ran.Text();
    const std::string folder = At(ran.result, "evidence_folder.path");
    ASSERT_TRUE(fs::is_directory(folder)) << ran.Text();
    EXPECT_EQ(folder, FolderOf(tool_.product, At(ran.result, "id")));
    ExpectWhole(folder);
    EXPECT_EQ(At(ran.result, "evidence_folder.manifest_sha256"), Sha256Hex(ReadText(folder + "/manifest.json")));
    const Json sandbox = ParseJson(ReadText(folder + "/sandbox.json"));
    EXPECT_EQ(At(sandbox, "session"), "s-1");
    EXPECT_EQ(At(sandbox, "labels.cause"), "prompt-7");
    EXPECT_EQ(At(sandbox, "contract_sha256"), Sha256Hex(tool_.product.Get("contract.yaml")));
    EXPECT_EQ(At(sandbox, "policy_hash"), At(ran.result, "policy.hash"));
    EXPECT_THAT(ReadText(folder + "/policy.txt"), HasSubstr("stockade.dev/v1 tool"));
    EXPECT_THAT(ReadText(folder + "/mounts.txt"), HasSubstr(" /out "));
    const std::string events = ReadText(folder + "/events.jsonl");
    for (const char* text : {"\"attested\"", "\"started\"", "\"destroyed\"", "/etc/shadow", "\"kind\":\"summary\""}) EXPECT_THAT(events, HasSubstr(text));
    EXPECT_THAT(ReadText(folder + "/result.json"), HasSubstr(Sha256Hex("password=hunter2hunter2\n")));
    // Secrets are below raw/ alone.
    for (const char* name : {"/sandbox.json", "/events.jsonl"}) EXPECT_THAT(ReadText(folder + name), Not(HasSubstr("hunter2hunter2"))) << name;
    EXPECT_THAT(ReadText(folder + "/raw/argv.json"), HasSubstr("hunter2hunter2"));
    struct stat info{};
    ASSERT_EQ(stat(Dir(tool_.product).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST_F(Kept, OfAKilledOneWhatRan) {
    const pid_t client = tool_.Start({"sh", "-c", "sleep 1000 & sleep 1001 & wait"}, {}, "killed");
    ASSERT_TRUE(Until([&] {
        const std::vector<pid_t> pids = tool_.product.Processes();
        return std::count_if(pids.begin(), pids.end(), [](pid_t pid) { return absl::StartsWith(ReadText(absl::StrCat("/proc/", pid, "/cmdline")), "sleep"); }) == 2;
    }));
    EXPECT_EQ(tool_.product.Stockade({"kill", tool_.product.Sandboxes().front()}).status, 0);
    const Ran ran = tool_.Finish(client, "killed");
    const std::string folder = At(ran.result, "evidence_folder.path");
    ASSERT_TRUE(fs::is_directory(folder)) << ran.Text();
    ExpectWhole(folder);
    // Its sleepers lived until they had been looked at: the freezer, where it is asked, must not have ended them.
    const std::string processes = ReadText(folder + "/processes.json");
    EXPECT_NE(At(ParseJson(processes), "taken_boot_ns"), "") << processes;
    EXPECT_THAT(processes, HasSubstr("\"comm\":\"sleep\"")) << ReadText(folder + "/events.jsonl");
    EXPECT_THAT(ReadText(folder + "/sockets.txt"), HasSubstr("== "));
    const std::string events = ReadText(folder + "/events.jsonl");
    EXPECT_THAT(events, HasSubstr("\"killed\""));
    EXPECT_EQ(absl::StrContains(events, "\"freeze_asked\""), At(ran.result, "backend") == "lsm");
}

// The states come in their order, each with its time, and the last two are told when they are so.
TEST_F(Kept, StatesInTheirOrder) {
    const Ran ran = tool_.Sh("true", {"--events", tool_.product.Path("states.events")});
    ASSERT_EQ(ran.status, 0) << ran.Text();
    const std::string events = tool_.product.Get("states.events");
    size_t at = 0;
    for (const char* step : {"registered", "policy-bound", "attested", "started", "destroyed", "evidence", "verified"}) {
        const size_t found = events.find(absl::StrCat("\"op\":\"", step, "\""), at);
        ASSERT_NE(found, std::string::npos) << step << "\n" << events;
        at = found;
    }
    EXPECT_THAT(events, HasSubstr(At(ran.result, "evidence_folder.manifest_sha256")));
    uint64_t last = 0;
    for (const char* step : {"created", "attested", "started", "ended", "removed", "evidence_kept"}) {
        uint64_t time = 0;
        ASSERT_TRUE(absl::SimpleAtoi(At(ran.result, absl::StrCat("times.", step, "_boot_ns")), &time)) << step << ran.Text();
        EXPECT_GE(time, last) << step;
        last = time;
    }
}

TEST_F(Kept, AnotherAgentGoesOnWithIt) {
    const pid_t client = tool_.Start({"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; [ -e /in/go ] && break; done; cat /etc/shadow; true"}, {}, "adopted");
    // The agent may not have told its client yet that the command runs.
    ASSERT_TRUE(Until([&] { return tool_.product.Processes().size() >= 2 && !FolderOf(tool_.product, tool_.product.Sandboxes().front()).empty(); }));
    const std::string id = tool_.product.Sandboxes().front(), folder = FolderOf(tool_.product, id);
    const pid_t agent = tool_.product.AgentPid();
    tool_.product.StopAgent(SIGKILL);
    ASSERT_NE(tool_.product.AwaitAgent(agent), 0);
    ASSERT_TRUE(Until([&] { return tool_.product.Stockade({"kill", id}).status == 0; }));
    const Ran ran = tool_.Finish(client, "adopted");
    EXPECT_EQ(At(ran.result, "evidence_folder.path"), folder) << ran.Text();
    ExpectWhole(folder);
    EXPECT_THAT(ReadText(folder + "/events.jsonl"), HasSubstr("\"killed\""));
}

TEST_F(Kept, TheHookIsToldOfEachFolder) {
    const std::string hook = tool_.product.Put("hook", absl::StrCat("#!/bin/sh\necho \"$1\" >>", tool_.product.Path("told"), "\nmv \"$1\" ", tool_.product.Path("moved"), "/\n"), 0755);
    fs::create_directories(tool_.product.Path("moved"));
    tool_.product.Configure(absl::StrCat("evidence:\n  dir: ", Dir(tool_.product), "\n  hook: ", hook, "\n"));
    const Ran ran = tool_.Sh("true");
    const std::string folder = At(ran.result, "evidence_folder.path");
    ASSERT_TRUE(Until([&] { return tool_.product.Get("told") == folder + "\n" && fs::exists(tool_.product.Path("moved") + "/" + fs::path(folder).filename().string() + "/manifest.json"); }));
    ExpectWhole(tool_.product.Path("moved") + "/" + fs::path(folder).filename().string());
}

TEST_F(Kept, WhatCannotBeKeptIsNoStart) {
    tool_.product.Put("file", "");
    tool_.product.Configure("evidence:\n  dir: " + tool_.product.Path("file") + "\n");
    EXPECT_EQ(tool_.Sh("echo ran").status, 125);
    fs::create_directories(tool_.product.Path("open"));
    chmod(tool_.product.Path("open").c_str(), 0755);
    tool_.product.Configure("evidence:\n  dir: " + tool_.product.Path("open") + "\n");
    const Ran ran = tool_.Sh("echo ran");
    EXPECT_EQ(ran.status, 125);
    EXPECT_EQ(ran.out, "");
}

}  // namespace
}  // namespace stockade::tests
