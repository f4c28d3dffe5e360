#include "userspace/pipeline/event_path.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "exporters/jsonl/jsonl.h"
#include "userspace/decode/test_records.h"
#include "userspace/model/json.h"

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

TEST(EventPath, FromRecordToLineAndSummary) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Fd read_end(ends[0]);
    EventPath path({.node = "n1", .lookup = decode::TestLookup()});
    const uint64_t id = path.AddExporter(exporters::MakeJsonlFd(Fd(ends[1]), "pipe", {}));
    std::vector<std::string> kinds;
    const uint64_t observer = path.AddObserver([&](const v1::Event& event) {
        kinds.push_back(event.kind());
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
    path.RemoveObserver(observer);
    path.OnRecord(Bytes(Refused(3, "shadow")));
    path.OnRecord(std::span<const uint8_t>());
    EXPECT_EQ(kinds.size(), 3u);

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

    ASSERT_TRUE(path.RemoveExporter(id).ok());
    const auto text = ReadAll(read_end.get(), 1 << 20);
    ASSERT_TRUE(text.ok());
    std::vector<std::string> lines;
    for (size_t at = 0; at < text->size();) {
        const size_t end = text->find('\n', at);
        const auto event = model::FromJsonLine(text->substr(at, end - at));
        ASSERT_TRUE(event.ok()) << event.status();
        EXPECT_FALSE(event->id().empty());
        EXPECT_TRUE(event->has_time());
        lines.push_back(event->kind());
        if (event->has_lost()) {
            EXPECT_EQ(event->sandbox().session(), "s1");
        }
        at = end + 1;
    }
    EXPECT_THAT(lines, ElementsAre("exec", "file", "finding", "file", "lost"));
}

TEST(EventPath, CountersNameStageAndReason) {
    EventPath path({.lookup = decode::TestLookup()});
    path.OnRecord(std::span<const uint8_t>());
    const auto counters = path.Counters();
    ASSERT_EQ(counters.size(), 1u);
    EXPECT_EQ(counters[0].stage, "decode");
    EXPECT_EQ(counters[0].reason, "short");
    EXPECT_EQ(counters[0].value, 1u);
}

// Stands still until it is let go.
class Stuck : public exporters::Exporter {
  public:
    std::string name() const override { return "stuck"; }
    Status Export(const v1::Event& event) override {
        std::unique_lock lock(mutex_);
        go_.wait(lock, [&] { return open_; });
        kinds_.push_back(event.kind());
        return absl::OkStatus();
    }
    Status Flush() override { return absl::OkStatus(); }
    Status Close() override { return absl::OkStatus(); }
    exporters::ExporterCounters counters() const override { return {}; }
    void Open() {
        std::lock_guard lock(mutex_);
        open_ = true;
        go_.notify_all();
    }
    size_t taken() {
        std::lock_guard lock(mutex_);
        return kinds_.size();
    }

  private:
    std::mutex mutex_;
    std::condition_variable go_;
    bool open_ = false;
    std::vector<std::string> kinds_;
};

TEST(ExportQueue, TelemetryGoesFirstAndNothingBlocks) {
    auto owned = std::make_unique<Stuck>();
    Stuck* stuck = owned.get();
    ExportQueue queue(std::move(owned), {.max_events = 10, .reserve = 5});
    const auto event = std::make_shared<const v1::Event>();
    for (int i = 0; i < 100; ++i) queue.Push(event, false);
    for (int i = 0; i < 100; ++i) queue.Push(event, true);
    const ExportQueue::Counters counters = queue.counters();
    EXPECT_EQ(counters.queued, 15u);
    EXPECT_EQ(counters.dropped_telemetry, 90u);
    EXPECT_EQ(counters.dropped_important, 95u);
    stuck->Open();
    EXPECT_TRUE(queue.Flush().ok());
    EXPECT_EQ(stuck->taken(), 15u);
}

}  // namespace
}  // namespace stockade::pipeline
