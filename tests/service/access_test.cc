// Members of the group, each with the others as control: what one may do, and that nobody else may.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tools/product.h"

namespace stockade::testing_service {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::At;
using tests::Ran;
using tests::Until;

// Debian has it, and nobody is in it.
constexpr char kGroup[] = "games";
constexpr uid_t kMember = 61001, kOther = 61002, kStranger = 61003;

class AccessTest : public testing::Test {
  protected:
    void SetUp() override {
        const group* found = getgrnam(kGroup);
        ASSERT_NE(found, nullptr);
        gid_ = found->gr_gid;
        product_.Configure(
            absl::StrCat("agent_wait_seconds: 60\napi: {group: ", kGroup, ", policies: [networkless]}\n"));
        // The agent is root's, and stays.
        ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    }
    // As this user, in the group or not; primary group another one.
    pid_t StartAs(uid_t uid, const std::vector<std::string>& words, const std::string& tag) {
        const gid_t group = gid_;
        const size_t groups = uid == kStranger ? 0 : 1;
        return product_.StartStockade(words, tag, [=] {
            if (setgroups(groups, &group) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(98);
        });
    }
    Ran As(uid_t uid, const std::vector<std::string>& words) {
        return product_.Finish(StartAs(uid, words, "as"), "as");
    }
    // The only sandbox of this owner that `viewer` sees; "" = none.
    std::string Sees(uid_t viewer, uid_t owner) {
        const Ran ran = As(viewer, {"ps", "-o", "json"});
        EXPECT_EQ(ran.status, 0) << ran.Text();
        std::string id;
        const tests::Json rows = tests::ParseJson(ran.out);
        for (const tests::Json& row : rows.list_value().values()) {
            if (At(row, "owner_uid") == absl::StrCat(owner)) id = At(row, "id");
        }
        return id;
    }
    gid_t gid_ = 0;
    tests::Product product_;
};

TEST_F(AccessTest, AMemberStartsWhatTheConfigurationAllowsAndNothingElse) {
    Ran ran = As(kMember, {"run", "--policy", "networkless", "--", "/bin/echo", "hello"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "hello\n");
    // Without a name it is the default, which is this one.
    EXPECT_EQ(As(kMember, {"run", "--", "/bin/true"}).status, 0);

    ran = As(kMember, {"run", "--policy", "python-tool", "--", "/bin/echo", "hello"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_THAT(ran.err, HasSubstr("not among those that members of the group games may use: networkless"));
    EXPECT_EQ(ran.out, "");
    const std::string own = product_.Put("own.yaml",
                                         "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: "
                                         "networkless}\nspec:\n  mode: observe\n");
    ran = As(kMember, {"run", "--policy", own, "--", "/bin/echo", "hello"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_THAT(ran.err, HasSubstr("for root alone"));
    EXPECT_EQ(ran.out, "");
    // Root may.
    EXPECT_EQ(product_.Run("python-tool", {"/bin/true"}).status != 125, true);

    ran = As(kStranger, {"run", "--policy", "networkless", "--", "/bin/echo", "hello"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(As(kStranger, {"ps"}).status, 0);
    EXPECT_NE(As(kStranger, {"status"}).status, 0);
    EXPECT_EQ(As(kMember, {"status"}).status, 0);
}

TEST_F(AccessTest, AMemberHandsInWhatIsTheirsAlone) {
    const auto dir = [&](const char* name, uid_t owner) {
        const std::string path = product_.Path(name);
        EXPECT_EQ(mkdir(path.c_str(), 0755), 0);
        EXPECT_EQ(chown(path.c_str(), owner, owner), 0);
        return path;
    };
    const std::string mine = dir("mine", kMember), out = dir("out", kMember), roots = dir("roots", 0);
    product_.Put("mine/note", "from me");
    Ran ran =
        As(kMember, {"run", "--in", mine, "--out", out, "--", "/bin/sh", "-c", "cat /in/note > /out/copy"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(product_.Get("out/copy"), "from me");
    struct stat info{};
    ASSERT_EQ(stat((out + "/copy").c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kMember);

    // What is copied out is written by root: into nobody else's directory.
    ran = As(kMember, {"run", "--out", roots, "--", "/bin/sh", "-c", "echo x > /out/planted"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_THAT(ran.err, HasSubstr("--out takes a directory that you own"));
    EXPECT_EQ(product_.Get("roots/planted"), "");
    EXPECT_EQ(As(kMember, {"run", "--in", "/root", "--", "/bin/true"}).status, 125);
    ran = As(kMember, {"run", "--bind", mine + ":/mnt", "--", "/bin/true"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_THAT(ran.err, HasSubstr("--bind is for root alone"));
    ran = As(kMember, {"run", "--rootfs", mine, "--", "/bin/true"});
    EXPECT_EQ(ran.status, 125);
    EXPECT_THAT(ran.err, HasSubstr("--rootfs is for root alone"));
}

TEST_F(AccessTest, EachSeesAndEndsTheirOwnAlsoAfterTheAgentWasKilled) {
    const pid_t member = StartAs(kMember, {"run", "--", "/bin/sleep", "1000"}, "m");
    const pid_t root = product_.StartRun("networkless", {"/bin/sleep", "1000"}, "r");
    std::string ids[2];
    ASSERT_TRUE(
        Until([&] { return !(ids[0] = Sees(0, kMember)).empty() && !(ids[1] = Sees(0, 0)).empty(); }));
    const auto check = [&](const char* when) {
        EXPECT_EQ(Sees(kMember, kMember), ids[0]) << when;
        EXPECT_EQ(Sees(kMember, 0), "") << when;
        EXPECT_EQ(Sees(kOther, kMember), "") << when;
        EXPECT_EQ(As(kMember, {"inspect", ids[0]}).status, 0) << when;
        EXPECT_NE(As(kMember, {"inspect", ids[1]}).status, 0) << when;
        EXPECT_NE(As(kOther, {"inspect", ids[0]}).status, 0) << when;
        EXPECT_NE(As(kMember, {"kill", ids[1]}).status, 0) << when;
        EXPECT_NE(As(kOther, {"kill", ids[0]}).status, 0) << when;
        EXPECT_EQ(Sees(0, 0), ids[1]) << when;
        EXPECT_EQ(Sees(0, kMember), ids[0]) << when;
    };
    check("before");
    const pid_t agent = product_.AgentPid();
    product_.StopAgent(SIGKILL);
    ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);  // starts the next
    ASSERT_NE(product_.AwaitAgent(agent), 0);
    ASSERT_TRUE(Until([&] { return Sees(0, kMember) == ids[0]; }));
    check("after");

    EXPECT_EQ(As(kMember, {"kill", ids[0]}).status, 0);
    EXPECT_EQ(product_.Finish(member, "m").status, 137);
    EXPECT_THAT(product_.Get("run/agent.log"), HasSubstr(absl::StrCat("killed on request of uid ", kMember)));
    EXPECT_EQ(As(0, {"kill", ids[1]}).status, 0);
    EXPECT_EQ(product_.Finish(root, "r").status, 137);
}

// Nobody speaks for another's session, nor spends its budget.
TEST_F(AccessTest, AMembersSessionIsInANameSpaceOfItsOwn) {
    const auto sessions = [&](uid_t uid, const std::string& session) {
        const Ran ran = uid == 0 ? product_.Run("networkless", {"/bin/true"}, {"--session", session})
                                 : As(uid, {"run", "--session", session, "--events", "-", "--", "/bin/true"});
        EXPECT_EQ(ran.status, 0) << ran.Text();
        std::set<std::string> seen;
        std::vector<tests::Json> events = ran.events;
        for (const absl::string_view line : absl::StrSplit(ran.out, '\n', absl::SkipEmpty()))
            events.push_back(tests::ParseJson(std::string(line)));
        for (const tests::Json& event : events) {
            if (!At(event, "sandbox.id").empty()) seen.insert(At(event, "sandbox.session"));
        }
        EXPECT_EQ(seen.size(), 1u) << ran.Text();
        EXPECT_EQ(absl::StrContains(ran.err, "events of this run have the session " + *seen.begin()),
                  uid != 0)
            << ran.err;
        return *seen.begin();
    };
    EXPECT_EQ(sessions(0, "build-7"), "build-7");
    EXPECT_EQ(sessions(kMember, "build-7"), absl::StrCat("uid", kMember, "/build-7"));
    EXPECT_EQ(sessions(kOther, "build-7"), absl::StrCat("uid", kOther, "/build-7"));
    // Their own whole name is that; somebody else's is not.
    const std::string whole = absl::StrCat("uid", kMember, "/build-7");
    EXPECT_EQ(sessions(kMember, whole), whole);
    EXPECT_EQ(sessions(kOther, whole), absl::StrCat("uid", kOther, "/", whole));
    product_.StopAgent(SIGTERM);
    product_.Configure(absl::StrCat("api: {group: ", kGroup, ", policies: [networkless], sessions: any}\n"));
    EXPECT_EQ(sessions(0, "build-7"), "build-7");
    EXPECT_THAT(As(kMember, {"run", "--session", "build-7", "--", "/bin/true"}).err,
                HasSubstr("have the session build-7\n"));
}

TEST_F(AccessTest, WhoKilledIsInTheAuditEvents) {
    product_.StopAgent(SIGTERM);
    product_.Configure(absl::StrCat(
        "events:\n  exporters:\n    - {kind: jsonl, path: ", product_.Path("events.jsonl"), "}\n"));
    const std::string roots =
        product_.Put("roots.yaml",
                     "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: "
                     "roots}\nspec:\n  mode: observe\n");
    ASSERT_EQ(product_.Run(roots, {"/bin/true"}).status, 0);
    const pid_t member = StartAs(kMember, {"run", "--", "/bin/sleep", "1000"}, "m");
    const pid_t root = product_.StartRun(roots, {"/bin/sleep", "1000"}, "r");
    std::string ids[2];
    ASSERT_TRUE(
        Until([&] { return !(ids[0] = Sees(0, kMember)).empty() && !(ids[1] = Sees(0, 0)).empty(); }));
    EXPECT_NE(As(kOther, {"kill", ids[0]}).status, 0);
    EXPECT_EQ(As(kMember, {"kill", ids[0], "--reason", "it hangs"}).status, 0);
    EXPECT_EQ(product_.Stockade({"kill", ids[1]}).status, 0);
    EXPECT_EQ(product_.Finish(member, "m").status, 137);
    EXPECT_EQ(product_.Finish(root, "r").status, 137);
    // Under which policy they ran is audited as well, and who brought it.
    const std::string audited = product_.Get("events.jsonl");
    for (const auto& [policy, uid] :
         {std::pair{"roots", 0}, std::pair{"networkless", static_cast<int>(kMember)}})
        EXPECT_THAT(audited, testing::ContainsRegex(absl::StrCat("\"op\":\"policy-loaded\"[^}]*\"detail\":\"",
                                                                 policy, " [0-9a-f]+, by uid ", uid, "\"")));
    std::vector<std::string> kills;
    ASSERT_TRUE(Until([&] {
        kills.clear();
        for (const absl::string_view line :
             absl::StrSplit(product_.Get("events.jsonl"), '\n', absl::SkipEmpty())) {
            const tests::Json event = tests::ParseJson(std::string(line));
            if (At(event, "kind") != "action") continue;
            EXPECT_NE(At(event, "action.actor_pid"), "");
            kills.push_back(absl::StrCat(At(event, "action.action"), " ", At(event, "action.result"), " of ",
                                         At(event, "sandbox.id"), " by ", At(event, "action.actor_uid"), ": ",
                                         At(event, "action.detail")));
        }
        return kills.size() >= 2;
    }));
    EXPECT_THAT(kills, testing::UnorderedElementsAre(
                           absl::StrCat("kill-sandbox done of ", ids[0], " by ", kMember, ": it hangs"),
                           absl::StrCat("kill-sandbox done of ", ids[1], " by 0: ")));
}

TEST_F(AccessTest, AMemberFollowsTheirOwnEvents) {
    const pid_t follower = StartAs(kMember, {"events", "--follow", "-o", "json"}, "f");
    const pid_t all = product_.StartStockade({"events", "--follow", "-o", "json"}, "all");
    // Both listen once an event has come through; until then it is tried again.
    ASSERT_TRUE(Until([&] {
        EXPECT_EQ(As(kMember, {"run", "--tool", "theirs", "--", "/bin/true"}).status, 0);
        EXPECT_EQ(product_.Run("networkless", {"/bin/true"}, {"--tool", "roots"}).status, 0);
        return absl::StrContains(product_.Get("f.out"), "theirs") &&
               absl::StrContains(product_.Get("all.out"), "roots");
    }));
    EXPECT_THAT(product_.Get("all.out"), HasSubstr("theirs"));
    EXPECT_THAT(product_.Get("f.out"), Not(HasSubstr("roots")));
    for (const pid_t pid : {follower, all}) {
        kill(pid, SIGKILL);
        (void)tests::Wait(pid);
    }
}

TEST_F(AccessTest, WithoutPoliciesOrGroupItIsRootsAlone) {
    for (const char* config :
         {"api: {group: games, policies: []}\n", "api: {group: no-such-group, policies: [networkless]}\n"}) {
        product_.StopAgent(SIGTERM);
        product_.Configure(config);
        ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
        EXPECT_EQ(As(kMember, {"run", "--", "/bin/true"}).status, 125) << config;
    }
    EXPECT_THAT(product_.Get("run/agent.log"), HasSubstr("the group no-such-group, which does not exist"));
}

}  // namespace
}  // namespace stockade::testing_service
