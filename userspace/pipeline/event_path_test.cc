#include "userspace/pipeline/event_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "userspace/base/clock.h"
#include "userspace/decode/test_records.h"

namespace stockade::pipeline {
namespace {

using decode::Bytes;
using decode::MakeRecord;
using testing::ElementsAre;
using testing::HasSubstr;

sk_file Refused(uint64_t seq, absl::string_view name) {
    auto record = MakeRecord<sk_file>(SK_KIND_FILE, seq);
    decode::Refuse(&record.head, SK_CODE_READ_NOT_ALLOWED, SK_SECTION_FILES);
    record.op = SK_FILE_OPEN_READ;
    decode::SetPath({"etc", name}, &record.path);
    return record;
}

TEST(EventPath, FromRecordToObserverAndSummary) {
    EventPath path({.node = "n1", .lookup = decode::TestLookup()});
    std::vector<std::string> kinds;
    path.AddObserver([&](const v1::Event& event) {
        kinds.push_back(event.kind());
        EXPECT_FALSE(event.id().empty());
        EXPECT_TRUE(event.has_time());
        if (event.has_lost()) {
            EXPECT_EQ(event.sandbox().session(), "s1");
        }
        if (event.kind() != "file") return;
        v1::Event finding;  // from within: comes after
        finding.mutable_finding()->set_rule("r");
        path.Publish(finding);
    });
    int urgent = 0;
    path.AddUrgentObserver([&](const v1::Event&) { ++urgent; });
    path.Track(1, 2, 1);
    auto exec = MakeRecord<sk_exec>(SK_KIND_EXEC, 1);
    decode::SetPath({"usr", "bin", "python3"}, &exec.path);
    path.OnRecord(Bytes(Refused(2, "shadow")));
    EXPECT_EQ(urgent, 1);  // at once, though it waits for number 1
    EXPECT_TRUE(kinds.empty());
    path.OnRecord(Bytes(exec));
    EXPECT_THAT(kinds, ElementsAre("exec", "file", "finding"));
    path.OnRecord(Bytes(Refused(3, "shadow")));
    path.OnRecord(std::span<const uint8_t>());
    EXPECT_THAT(kinds, ElementsAre("exec", "file", "finding", "file", "finding"));

    sk_state state{};
    state.seq = 5;
    state.allowed[SK_SECTION_EXEC] = 1;
    state.violations[SK_SECTION_FILES] = 2;
    const v1::Summary summary = path.Finish(1, 2, &state);
    ASSERT_EQ(summary.refusals_size(), 1);
    EXPECT_EQ(summary.refusals(0).count(), 2u);
    EXPECT_EQ(summary.refusals(0).exe(), "/usr/bin/python3");
    EXPECT_EQ(summary.lost(), 2u);
    EXPECT_EQ(summary.sections_size(), 2);
    EXPECT_THAT(SummaryText(summary),
                HasSubstr("refused: the policy does not allow reading /etc/shadow (files.read, by "
                          "bpf, prevented, 2 times)\n    to allow it: files.read: [/etc/shadow]\n"));
    EXPECT_THAT(kinds, ElementsAre("exec", "file", "finding", "file", "finding", "lost"));
}

// The rules' own view: as it was before; also of what an argument says later, in other events of the process.
TEST(EventPath, RawObserversSeeWhatIsRedactedForTheOthers) {
    EventPath path({.node = "n1", .lookup = decode::TestLookup()});
    std::vector<std::string> raw, told;
    path.AddRawObserver([&](const std::shared_ptr<const v1::Event>& event) { raw.push_back(event->ShortDebugString()); });
    path.AddObserver([&](const v1::Event& event) { told.push_back(event.ShortDebugString()); });
    path.Track(1, 2, 1);
    path.OnRecord(Bytes(Refused(1, "shadow")));
    ASSERT_EQ(raw.size(), 1u);
    EXPECT_EQ(raw, told) << "without a secret they are the same";
    path.OnRecord(Bytes(Refused(2, "token=abcdefghijklmnop")));
    v1::Event own;
    own.mutable_sandbox()->set_id("x");
    own.mutable_lifecycle()->set_detail("--password=hunter2hunter2");
    path.Publish(own);
    ASSERT_EQ(raw.size(), 3u);
    ASSERT_EQ(told.size(), 3u);
    EXPECT_THAT(raw[1], HasSubstr("abcdefghijklmnop"));
    EXPECT_THAT(told[1], testing::Not(HasSubstr("abcdefghijklmnop")));
    EXPECT_THAT(raw[2], HasSubstr("hunter2"));
    EXPECT_THAT(told[2], testing::Not(HasSubstr("hunter2")));
    EXPECT_THAT(told[2], HasSubstr("redactions"));
}

// Names are as secret as other bytes of a sandbox.
TEST(EventPath, AConnectionHasTheNameOfTheAnswerUntilItsSandboxIsForgotten) {
    EventPath path({.node = "n1", .lookup = decode::TestLookup()});
    std::vector<std::string> raw, told;
    path.AddRawObserver([&](const std::shared_ptr<const v1::Event>& event) { raw.push_back(event->net().host_name()); });
    path.AddObserver([&](const v1::Event& event) { told.push_back(event.net().host_name()); });
    const std::string id = decode::TestLookup()(1, 2)->id.str();
    path.Track(1, 2, 1);
    const auto connect = [&](uint64_t seq) {
        auto record = MakeRecord<sk_net>(SK_KIND_NET, seq);
        record.head.boot_ns = BootNow();
        record.op = SK_NET_CONNECT;
        record.family = AF_INET;
        record.address[0] = 192;
        record.address[3] = 1;
        path.OnRecord(Bytes(record));
    };
    path.LearnName("another", "192.0.0.1", "other.test");
    connect(1);
    path.LearnName(id, "192.0.0.1", "one.test");
    connect(2);
    path.LearnName(id, "192.0.0.1", "token=abcdefghijklmnop.test");
    connect(3);
    path.Forget(id, 0, 0);
    connect(4);
    EXPECT_THAT(raw, ElementsAre("", "one.test", "token=abcdefghijklmnop.test", ""));
    EXPECT_THAT(told, ElementsAre("", "one.test", testing::Not(HasSubstr("abcdefghijklmnop")), ""));
    EXPECT_EQ(path.counters().names_known, 1u);
}

}  // namespace
}  // namespace stockade::pipeline
