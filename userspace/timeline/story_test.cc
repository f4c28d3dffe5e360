#include "userspace/timeline/story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stockade::timeline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'700'000'000;

class Events {
  public:
    // A record of sandbox `id` in session s-42, `ms` after its beginning.
    v1::Event& Make(const std::string& id, int ms) {
        v1::Event& event = events_.emplace_back();
        event.set_id(absl::StrCat(id, ".", ++seq_));
        event.mutable_time()->set_seconds(kSecond);
        event.mutable_time()->set_nanos(ms * 1'000'000);
        event.set_boot_ns(static_cast<uint64_t>(ms) * 1'000'000);
        event.set_node("n1");
        event.set_kernel_seq(seq_);
        event.set_verdict("allow");
        event.mutable_sandbox()->set_id(id);
        event.mutable_sandbox()->set_session("s-42");
        event.mutable_sandbox()->set_tool("python");
        event.mutable_process()->set_pid(7);
        event.mutable_process()->set_exe("/usr/bin/python3");
        return event;
    }
    v1::Event& Step(const std::string& id, int ms, const std::string& op) {
        v1::Event& event = Make(id, ms);
        event.clear_verdict();
        event.set_kind("lifecycle");
        event.mutable_lifecycle()->set_op(op);
        return event;
    }
    v1::Event& Read(const std::string& id, int ms, const std::string& path) {
        v1::Event& event = Make(id, ms);
        event.set_kind("file");
        event.mutable_file()->set_op("open-read");
        event.mutable_file()->set_path(path);
        return event;
    }
    v1::Event& Refuse(const std::string& id, int ms, const std::string& reason) {
        v1::Event& event = Read(id, ms, "/x");
        event.set_verdict("deny");
        event.set_outcome("prevented");
        event.set_lock("bpf");
        event.set_code("files.read");
        event.set_reason(reason);
        return event;
    }
    Story Tell(const std::string& session = "s-42") const {
        StoryBuilder builder(session);
        for (const v1::Event& event : events_) builder.Add(event);
        return builder.Finish();
    }
    std::vector<v1::Event> events_;

  private:
    uint64_t seq_ = 0;
};

std::vector<std::string> Texts(const Story& story) {
    std::vector<std::string> out;
    for (const Row& row : story.rows) out.push_back(row.text + row.Times());
    return out;
}

TEST(Story, IsOneOrderOverAllSandboxesOfTheSession) {
    Events events;
    events.Step("b", 20, "registered");
    events.Step("a", 10, "registered");
    v1::Event& run = events.Make("a", 15);
    run.mutable_exec()->set_role("program");
    for (const char* word : {"python3", "-c", "print(1)"}) run.mutable_exec()->add_argv(word);
    events.Step("a", 30, "destroyed").mutable_lifecycle()->set_exit_status(3);
    v1::Event& other = events.Step("c", 5, "registered");
    other.mutable_sandbox()->set_session("s-43");
    const Story story = events.Tell();
    EXPECT_THAT(Texts(story), testing::ElementsAre("The sandbox was made", "Ran python3 -c 'print(1)'", "The sandbox was made",
                                                   "The sandbox was removed, and nothing of it is left"));
    ASSERT_EQ(story.sandboxes.size(), 2u);
    EXPECT_EQ(story.sandboxes[0].id, "a");
    EXPECT_EQ(story.sandboxes[0].command, "python3 -c 'print(1)'");
    EXPECT_EQ(story.sandboxes[0].exit_status, 3);
    EXPECT_TRUE(story.sandboxes[0].removed);
    EXPECT_FALSE(story.sandboxes[1].has_status);
    EXPECT_EQ(events.Tell("b").rows.size(), 1u) << "a sandbox's id is a name as well";
    EXPECT_TRUE(events.Tell("s-44").rows.empty());
}

TEST(Story, GathersWhatWasAllowedUntilSomethingHappens) {
    Events events;
    for (int i = 0; i < 3; ++i) events.Read("a", i, absl::StrCat("/lib/", i));
    events.Read("a", 4, "/lib/0");
    events.Refuse("a", 5, "the policy does not allow reading /x");
    events.Refuse("a", 6, "the policy does not allow reading /x");
    events.Read("a", 7, "/lib/9");
    const Story story = events.Tell();
    EXPECT_THAT(Texts(story), testing::ElementsAre("Read 3 files (4 times)", "the policy does not allow reading /x (2 times)", "Read /lib/9"));
    EXPECT_THAT(story.rows[0].items, testing::ElementsAre("/lib/0", "/lib/1", "/lib/2"));
    EXPECT_EQ(story.rows[1].tone, Tone::kRefused);
    EXPECT_EQ(story.rows[1].detail, "files.read, prevented, by bpf");
    EXPECT_EQ(story.sandboxes[0].refused, 2u);
}

TEST(Story, RefusalsOfOneKindAreOneRow) {
    Events events;
    for (const char* name : {"a", "b", "a", "c"}) events.Refuse("a", 1, absl::StrCat("the policy does not allow reading /", name));
    events.Refuse("a", 2, "something else").set_code("files.write");
    const Story story = events.Tell();
    EXPECT_THAT(Texts(story), testing::ElementsAre("the policy does not allow reading /a, and 2 more of this kind (4 times)", "something else"));
    EXPECT_EQ(story.rows[0].items.size(), 3u);
}

TEST(Story, CountsWhatOneEventStandsFor) {
    Events events;
    events.Refuse("a", 1, "no");
    v1::Event& repeat = events.Refuse("a", 2, "no");
    repeat.mutable_repeat()->set_count(40);
    v1::Event& lost = events.Make("a", 3);
    lost.mutable_lost()->set_count(5);
    lost.mutable_lost()->set_stage("ring");
    const Story story = events.Tell();
    EXPECT_THAT(Texts(story), testing::ElementsAre("no (41 times)", "5 events are missing"));
    EXPECT_EQ(story.sandboxes[0].refused, 41u);
    EXPECT_EQ(story.sandboxes[0].lost, 5u);
}

TEST(Story, AnEventThatCameTwiceIsToldOnce) {
    Events events;
    events.Step("a", 1, "registered");
    events.events_.push_back(events.events_[0]);
    const Story story = events.Tell();
    EXPECT_EQ(story.rows.size(), 1u);
    EXPECT_EQ(story.repeated, 1u);
}

TEST(Story, SaysWhoActedAndWithWhichResult) {
    Events events;
    v1::Event& rule = events.Make("a", 1);
    rule.mutable_action()->set_action("kill-sandbox");
    rule.mutable_action()->set_result("done");
    rule.mutable_action()->set_title("Scan");
    rule.mutable_action()->set_latency_ns(4'000'000);
    v1::Event& person = events.Make("a", 2);
    person.mutable_action()->set_action("freeze");
    person.mutable_action()->set_result("failed");
    person.mutable_action()->set_actor_uid(0);
    const Story story = events.Tell();
    EXPECT_THAT(Texts(story), testing::ElementsAre("kill-sandbox: done, for the rule Scan", "freeze: failed, for a person (uid 0)"));
    EXPECT_EQ(story.rows[0].detail, "after 4 ms");
}

TEST(Story, OneObservedIsSaidToHaveHappened) {
    Events events;
    v1::Event& event = events.Refuse("a", 1, "no");
    event.set_dry_run(true);
    EXPECT_THAT(events.Tell().rows[0].detail, HasSubstr("it happened"));
}

TEST(Story, TellsSpansOfItsTrace) {
    Events events;
    events.Step("a", 10, "registered").mutable_sandbox()->set_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    StoryBuilder builder("s-42");
    for (const v1::Event& event : events.events_) builder.Add(event);
    const uint64_t start = static_cast<uint64_t>(kSecond) * 1'000'000'000;
    const auto spans = ParseSpans(absl::StrCat(
        R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"4BF92F3577B34DA6A3CE929D0E0E4736","spanId":"01","name":"answer the prompt",)",
        R"("startTimeUnixNano":")", start, R"(","endTimeUnixNano":")", start + 2'000'000'000, R"("},{"traceId":"00","name":"another's"}]}]}]})", "\n"));
    ASSERT_TRUE(spans.ok()) << spans.status();
    EXPECT_EQ(spans->size(), 2u);
    for (const Span& span : *spans) builder.AddSpan(span);
    const Story story = builder.Finish();
    EXPECT_THAT(Texts(story), testing::ElementsAre("Span answer the prompt", "The sandbox was made"));
    EXPECT_EQ(story.rows[0].detail, "took 2 s, span 01");
    EXPECT_EQ(story.last_ns - story.first_ns, 2'000'000'000u);
}

TEST(Spans, AreReadALineEachToo) {
    const std::string one = R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"ab","name":"x"}]}]}]})";
    EXPECT_EQ(ParseSpans(absl::StrCat(one, "\n\n", one, "\n"))->size(), 2u);
    EXPECT_TRUE(ParseSpans("")->empty());
    EXPECT_TRUE(absl::StrContains(ParseSpans(absl::StrCat(one, "\n{}\n")).status().message(), "line 2: no resourceSpans"));
    EXPECT_FALSE(ParseSpans("{").ok());
    EXPECT_FALSE(ParseSpans(std::string(100'000, '[')).ok());
}

// What a file says is not what a terminal or a browser may take for its own.
TEST(Story, TextOfOthersStaysText) {
    Events events;
    v1::Event& step = events.Step("a", 1, "registered");
    step.mutable_sandbox()->set_tool("<script>alert(1)</script>");
    (*step.mutable_sandbox()->mutable_labels())["<b onclick='x'>"] = "\"&";
    events.Refuse("a", 2, "\x1b]0;x\x07<img src=x>");
    const Story story = events.Tell();
    const std::string text = ToText(story, {});
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, HasSubstr("\\x1b]0;x\\x07<img src=x>"));
    const std::string page = ToPage(story);
    for (const char* bad : {"<script>alert", "<img", "<b ", "\x1b"}) EXPECT_THAT(page, Not(HasSubstr(bad)));
    EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
    EXPECT_THAT(page, HasSubstr("&lt;b onclick=&#39;x&#39;&gt;"));
}

TEST(Page, FetchesNothing) {
    Events events;
    events.Step("a", 1, "registered");
    const std::string page = ToPage(events.Tell());
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
    for (const char* bad : {"http:", "https:", "src=", "@import", "url("}) EXPECT_THAT(page, Not(HasSubstr(bad))) << bad;
}

TEST(Words, AreWhatAPersonReads) {
    EXPECT_EQ(Duration(0), "0 µs");
    EXPECT_EQ(Duration(1'500'000), "1.5 ms");
    EXPECT_EQ(Duration(2'300'000'000), "2.3 s");
    EXPECT_EQ(Duration(250'000'000'000), "4 min 10 s");
    EXPECT_EQ(WallTime(1'700'000'000'123'000'000), "2023-11-14 22:13:20.123 UTC");
    google::protobuf::RepeatedPtrField<std::string> argv;
    for (const char* word : {"sh", "", "a b", "it's"}) *argv.Add() = word;
    EXPECT_EQ(CommandLine(argv), "sh '' 'a b' 'it'\\''s'");
}

}  // namespace
}  // namespace stockade::timeline
