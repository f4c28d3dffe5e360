#include "userspace/cmd/run_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "userspace/cmd/json.h"

namespace stockade::cmd {
namespace {

bool Has(const api::Run& run, const std::string& entry) {
    return std::find(run.env().begin(), run.env().end(), entry) != run.env().end();
}
bool HasKey(const api::Run& run, const std::string& key) {
    return std::any_of(run.env().begin(), run.env().end(),
                       [&](const std::string& entry) { return absl::StartsWith(entry, key + "="); });
}

TEST(RunRequest, TheEnvironmentIsAnAllowlist) {
    setenv("AWS_SECRET_ACCESS_KEY", "x", 1);
    setenv("LC_TIME", "C", 1);
    setenv("WANTED", "w", 1);
    RunFlags flags;
    flags.command = {"true"};
    flags.env = {"A=b=c", "WANTED", "ABSENT_AT_THE_CALLERS"};
    auto request = MakeRunRequest(flags);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_FALSE(HasKey(request->run, "AWS_SECRET_ACCESS_KEY"));
    EXPECT_FALSE(HasKey(request->run, "ABSENT_AT_THE_CALLERS"));
    EXPECT_TRUE(Has(request->run, "LC_TIME=C"));
    EXPECT_TRUE(Has(request->run, "A=b=c"));
    EXPECT_TRUE(Has(request->run, "WANTED=w"));
    EXPECT_TRUE(Has(request->run, "HOME=/tmp"));
}

TEST(RunRequest, APolicyIsAFileOrAName) {
    RunFlags flags;
    flags.policy = "python-tool";
    auto named = MakeRunRequest(flags);
    ASSERT_TRUE(named.ok());
    EXPECT_EQ(named->run.policy().name(), "python-tool");
    for (const char* missing : {"./python-tool", "python-tool.yaml"}) {
        flags.policy = missing;
        EXPECT_FALSE(MakeRunRequest(flags).ok()) << missing;
    }
}

TEST(RunRequest, BindsSayWhatTheyShowWhere) {
    RunFlags flags;
    flags.binds = {"/usr", "/tmp:/data:rw"};
    auto request = MakeRunRequest(flags);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->run.binds(0).target(), "/usr");
    EXPECT_FALSE(request->run.binds(0).writable());
    EXPECT_EQ(request->run.binds(1).target(), "/data");
    EXPECT_TRUE(request->run.binds(1).writable());
    EXPECT_EQ(request->fds.size(), 2u);
    flags.binds = {"a:b:c:d"};
    EXPECT_FALSE(MakeRunRequest(flags).ok());
}

TEST(RunRequest, DurationsAndSizes) {
    RunFlags flags;
    flags.timeout = "1.5s";
    flags.out_size = "64MiB";
    auto request = MakeRunRequest(flags);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->run.timeout_ns(), 1'500'000'000u);
    EXPECT_EQ(request->run.out_bytes(), 64u << 20);
    for (const char* bad : {"0", "-1s", "soon", "5"}) {
        flags.timeout = bad;
        EXPECT_FALSE(MakeRunRequest(flags).ok()) << bad;
    }
    flags.timeout.clear();
    for (const char* bad : {"0", "x", "1TiB", "99999999999999999999"}) {
        flags.out_size = bad;
        EXPECT_FALSE(MakeRunRequest(flags).ok()) << bad;
    }
}

TEST(Json, EscapesWhateverBytesSay) {
    EXPECT_EQ(JsonString("a\"b"), "\"a\\\"b\"");
    EXPECT_EQ(JsonString(std::string("x\x1b[31m")), "\"x\\\\x1b[31m\"");
    JsonObject object;
    object.Add("k", "v").Add("n", 3).Add("t", true).AddRaw("l", JsonArray({"1", "2"}));
    EXPECT_EQ(object.Done(), "{\"k\":\"v\",\"n\":3,\"t\":true,\"l\":[1,2]}");
}

}  // namespace
}  // namespace stockade::cmd
