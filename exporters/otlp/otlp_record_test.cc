#include "exporters/otlp/otlp_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace stockade::exporters {
namespace {

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

v1::Event Read() {
    v1::Event event;
    event.set_id("sbx_1.7");
    event.set_node("n1");
    event.set_kind("file");
    event.set_export_seq(9);
    event.mutable_time()->set_seconds(1'700'000'000);
    event.mutable_time()->set_nanos(5);
    event.mutable_sandbox()->set_id("sbx_1");
    event.mutable_sandbox()->set_session("s-1");
    event.mutable_sandbox()->set_trace(kTrace);
    event.mutable_file()->set_path("/etc/passwd");
    return event;
}

otlp::LogRecord RecordOf(const v1::Event& event, Format format, uint64_t observed_ns) {
    const std::string text = event.SerializeAsString();
    const StatusOr<otlp::LogRecord> record = ToLogRecord(*model::EventBytes::Of(text), format, observed_ns);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *record : otlp::LogRecord();
}

std::string Text(const otlp::LogRecord& record, const std::string& key) {
    for (const otlp::KeyValue& entry : record.attributes())
        if (entry.key() == key) return entry.value().text();
    return "";
}

TEST(OtlpRecord, HasTheTraceOfItsSandboxAndWhatOneLooksFor) {
    const otlp::LogRecord record = RecordOf(Read(), Format::kNative, 42);
    EXPECT_EQ(record.time_unix_nano(), 1'700'000'000'000'000'005u);
    EXPECT_EQ(record.observed_time_unix_nano(), 42u);
    EXPECT_EQ(absl::BytesToHexString(record.trace_id()), "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(absl::BytesToHexString(record.span_id()), "00f067aa0ba902b7");
    EXPECT_EQ(record.flags(), 1u);
    EXPECT_EQ(record.event_name(), "dev.stockade.event.file.v1");
    EXPECT_EQ(Text(record, "session.id"), "s-1");
    EXPECT_EQ(Text(record, "stockade.sandbox.id"), "sbx_1");
    EXPECT_EQ(Text(record, "stockade.class"), "file");
    EXPECT_THAT(record.body().text(), testing::HasSubstr("\"path\":\"/etc/passwd\""));
    EXPECT_THAT(RecordOf(Read(), Format::kOcsf, 42).body().text(),
                testing::HasSubstr("\"class_uid\":1001"));
}

TEST(OtlpRecord, WhatIsNoTraceparentIsNoTrace) {
    const std::string good = kTrace;
    for (std::string bad : {std::string(), good.substr(1), good + "0", "00_" + good.substr(3),
                            good.substr(0, 10) + "G" + good.substr(11), good.substr(0, 54) + "x",
                            good.substr(0, 35) + "0" + good.substr(36)}) {
        v1::Event event = Read();
        event.mutable_sandbox()->set_trace(bad);
        const otlp::LogRecord record = RecordOf(event, Format::kNative, 1);
        EXPECT_TRUE(record.trace_id().empty() && record.span_id().empty() && record.flags() == 0) << bad;
    }
}

TEST(OtlpRecord, SeverityFollowsVerdictAndFinding) {
    const auto severity = [](const std::function<void(v1::Event&)>& change) {
        v1::Event event = Read();
        change(event);
        return RecordOf(event, Format::kNative, 1).severity_text();
    };
    EXPECT_EQ(severity([](v1::Event&) {}), "INFO");
    EXPECT_EQ(severity([](v1::Event& e) { e.set_verdict("deny"); }), "WARN");
    EXPECT_EQ(severity([](v1::Event& e) { e.set_verdict("kill-sandbox"); }), "ERROR");
    EXPECT_EQ(severity([](v1::Event& e) { e.set_verdict("kill-sandbox"), e.set_dry_run(true); }), "WARN");
    EXPECT_EQ(severity([](v1::Event& e) { e.mutable_finding()->set_severity("critical"); }), "FATAL");
    EXPECT_EQ(severity([](v1::Event& e) { e.mutable_finding()->set_severity("low"); }), "INFO");
    EXPECT_EQ(severity([](v1::Event& e) { e.mutable_lost()->set_count(1); }), "ERROR");
}

TEST(OtlpRecord, IsMarkedOnce) {
    otlp::LogRecord record = RecordOf(Read(), Format::kNative, 1);
    const int before = record.attributes_size();
    MarkAgain(&record);
    MarkAgain(&record);
    EXPECT_EQ(record.attributes_size(), before + 1);
}

}  // namespace
}  // namespace stockade::exporters
