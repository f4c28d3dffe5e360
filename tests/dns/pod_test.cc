// Without a stub: a real client before a real resolver, and the agent's part of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/dns/unbound.h"
#include "tests/live/answer_world.h"
#include "userspace/cmd/sandbox_dns.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade {
namespace {

using ::testing::HasSubstr;

constexpr char kUnbound[] = "10.1.0.60";
constexpr int kNames = 1000;

std::string Zone() {
    std::string zone =
        "$TTL 60\n@ IN SOA ns.test. admin.test. 1 3600 600 86400 120\n@ IN NS ns.test.\nns IN A 127.0.0.78\n"
        "other IN A 203.210.0.1\nmeta.fresh IN A 169.254.169.254\nboth.fresh IN A 203.210.0.2\nboth.fresh IN "
        "AAAA 2a00:53::1\n"
        "hop0.cdn IN A 203.210.0.3\nalias.fresh IN CNAME hop7.cdn\n";
    for (int i = 1; i < 8; ++i) absl::StrAppend(&zone, "hop", i, ".cdn IN CNAME hop", i - 1, ".cdn\n");
    for (int i = 0; i < kNames; ++i)
        absl::StrAppend(&zone, "n", i, ".fresh IN A 203.211.", i / 250, ".", 1 + i % 250, "\n");
    return zone;
}

constexpr char kPolicy[] = R"(apiVersion: stockade.dev/v1
kind: SandboxPolicy
metadata: {name: pod}
spec:
  network: {allow: [{name: "*.fresh.test", ports: [443]}]}
  dns: {mode: open, resolvers: [10.1.0.60], budget: {zone: none, total: none}}
)";

// A name a line of what becomes of it.
constexpr char kClient[] = R"py(
import errno, socket
def reach(name):
    try:
        socket.create_connection((name, 443), 20).close()
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
print("fresh", sum(reach(f"n{i}.fresh.test") == "ok" for i in range(1000)))
for name in ["both.fresh.test", "alias.fresh.test", "other.test", "meta.fresh.test"]:
    print(name, reach(name))
)py";

StatusOr<policy::ResolvedPolicy> Resolved() {
    std::vector<policy::Diagnostic> diagnostics;
    policy::ParseResult parsed = policy::ParseFiles({{"pod.yaml", kPolicy}});
    policy::PolicyLibrary library;
    library.Add(std::move(parsed.policies), diagnostics);
    auto resolved = library.Resolve("pod", diagnostics);
    if (!resolved) return absl::InternalError("the policy does not resolve");
    return *resolved;
}

// The process's own /etc/resolv.conf.
Status ResolvConf(const std::string& text) {
    char file[] = "/tmp/stockade-resolv.XXXXXX";
    Fd made(mkstemp(file));
    std::ofstream(file) << text;
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(file, "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0)
        return absl::InternalError(absl::StrCat("mount resolv.conf: ", strerror(errno)));
    return absl::OkStatus();
}

TEST(Pod, ARealClientReachesTheNamesOfThePolicyAtTheFirstTry) {
    ASSERT_NE(live::AnswerWorld::Get(), nullptr);
    ASSERT_TRUE(ResolvConf(absl::StrCat("nameserver ", kUnbound, "\n")).ok());
    auto unbound = Unbound::Start({.zone = Zone(), .address = kUnbound, .port = 53});
    ASSERT_TRUE(unbound.ok()) << unbound.status();
    auto policy = Resolved();
    ASSERT_TRUE(policy.ok()) << policy.status();
    char dir[] = "/tmp/stockade_pod_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    const auto gone = std::unique_ptr<char, void (*)(char*)>(dir, [](char* path) { std::filesystem::remove_all(path); });
    cmd::SandboxDns dns(
        {.sensor = live::TheSensor(), .publish = [](v1::Event) {}, .runtime_dir = dir, .state_dir = absl::StrCat(dir, "/state")});
    const auto plan = dns.Plan(*policy);
    ASSERT_TRUE(plan.ok()) << plan.status();

    live::Policy rules{.exec = {"/usr/bin/python3*"},
                       .libraries = {"/**"},
                       .read = {"/**"},
                       .network = {"{name: \"*.fresh.test\", ports: [443]}"}};
    live::Sandbox sandbox(rules, {"exec", "/usr/bin/python3", "-c", kClient});
    ASSERT_TRUE(sandbox.ok());
    const Status started = dns.Start({.ref = sandbox.ref(),
                                      .id = "sbx_pod",
                                      .session = "",
                                      .plan = *plan,
                                      .address = "",
                                      .udp = {},
                                      .tcp = {},
                                      .without_stub = true},
                                     *policy);
    ASSERT_TRUE(started.ok()) << started;
    (void)live::AnswersSince();
    sandbox.Go();
    const live::Result result = sandbox.Finish();
    EXPECT_THAT(result.output, HasSubstr(absl::StrCat("fresh ", kNames, "\n")));
    EXPECT_THAT(
        result.output,
        HasSubstr("both.fresh.test ok\nalias.fresh.test ok\nother.test EPERM\nmeta.fresh.test EPERM\n"));
    const std::vector<uint64_t> counted = live::AnswersSince();
    EXPECT_GE(counted[SK_DNS_ANSWER_PINNED], static_cast<uint64_t>(kNames));
    EXPECT_EQ(counted[SK_DNS_ANSWER_SCOPE], 1u);
    dns.End(sandbox.ref());
}

}  // namespace
}  // namespace stockade
