// That the bench measures: its own checks of each path pass, and every figure is there. No figure is held to anything.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/process.h"

namespace stockade::bench {
namespace {

Ran Bench(std::vector<std::string> args) {
    const char* dir = getenv("STOCKADE_BIN_DIR");
    args.insert(args.begin(), absl::StrCat(dir ? dir : ".", "/stockade-bench"));
    // Guests are some ten times slower.
    auto ran = RunProcess(args, getenv("STOCKADE_IN_GUEST") ? 600 : 120);
    EXPECT_TRUE(ran.ok()) << ran.status();
    return ran.ok() ? *std::move(ran) : Ran{};
}

void ExpectFigures(const Ran& ran, const std::vector<std::string>& names) {
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_FALSE(absl::StrContains(ran.out, "\"skipped\"")) << ran.out;
    for (const std::string& name : names)
        EXPECT_TRUE(absl::StrContains(ran.out, absl::StrCat("\"name\": \"", name, "\""))) << ran.out;
}

TEST(Bench, MeasuresTasksOutside) {
    ExpectFigures(Bench({"outside", "programs", "--rounds", "1", "--seconds", "0.1", "--json", "-"}),
                  {"outside.getppid", "outside.open_close", "outside.exec", "outside.connect",
                   "outside.udp_sendto", "programs.exec_done"});
}

TEST(Bench, MeasuresVerdictsInside) {
    ExpectFigures(Bench({"inside", "--rounds", "1", "--seconds", "0.1", "--json", "-"}),
                  {"inside.open_close.10_patterns", "inside.exec.1000_patterns",
                   "inside.connect.4096_sandboxes", "inside.open_close.1000_to_10"});
}

TEST(Bench, ReadsTheRing) {
    ExpectFigures(Bench({"ring", "--seconds", "0.1", "--json", "-"}), {"ring.1_producers"});
}

TEST(Bench, FollowsEventsToTheirEnd) {
    // Not to Kafka: that is what ./dev test events starts one for.
    ExpectFigures(Bench({"events.jsonl", "--seconds", "0.2", "--json", "-"}),
                  {"events.jsonl.per_second", "events.jsonl.cpu", "events.jsonl.latency", "events.jsonl.memory", "events.jsonl.at_5000"});
}

TEST(Bench, MeasuresQueries) {
    ExpectFigures(Bench({"dns", "--rounds", "1", "--seconds", "0.1", "--json", "-"}),
                  {"dns.query.usual", "dns.query.longest_name", "dns.meter.usual", "dns.memory.zone", "dns.memory.budget_id"});
}

TEST(Bench, ShowsOnlyWhatIsAskedFor) {
    const Ran ran = Bench({"programs.exec", "--json", "-"});
    ExpectFigures(ran, {"programs.exec_done"});
    EXPECT_FALSE(absl::StrContains(ran.out, "programs.net_connect4"));
}

TEST(Bench, RefusesWhatItDoesNotKnow) {
    const Ran ran = Bench({"inside", "nonsense"});
    EXPECT_EQ(ran.status, 2);
    EXPECT_TRUE(absl::StrContains(ran.err, "no bench nonsense")) << ran.err;
    EXPECT_EQ(Bench({"--seconds", "x"}).status, 2);
}

}  // namespace
}  // namespace stockade::bench
