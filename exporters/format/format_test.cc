#include "exporters/format/format.h"

#include <gmock/gmock.h>
#include <google/protobuf/timestamp.pb.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace stockade::exporters {
namespace {

// What is looked at lives as long as this.
struct Serialised {
    explicit Serialised(const v1::Event& event) : text(event.SerializeAsString()), bytes(*model::EventBytes::Of(text)) {}
    const std::string text;
    const model::EventBytes bytes;
};

TEST(Format, NamesAreChecked) {
    EXPECT_EQ(*FormatNamed("json"), Format::kNative);
    EXPECT_EQ(*FormatNamed("ocsf"), Format::kOcsf);
    EXPECT_THAT(std::string(FormatNamed("osfc").status().message()), testing::HasSubstr("json and ocsf"));
}

TEST(Format, EveryKindHasAClass) {
    const std::vector<absl::string_view> classes = Classes();
    const std::set<absl::string_view> known(classes.begin(), classes.end());
    std::set<absl::string_view> seen;
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) {
        v1::Event event;
        event.GetReflection()->MutableMessage(&event, payload->field(i));
        EXPECT_EQ(known.count(ClassOf(Serialised(event).bytes)), 1u) << payload->field(i)->name();
        seen.insert(ClassOf(Serialised(event).bytes));
    }
    EXPECT_EQ(seen, known);
}

TEST(Format, WhatAPersonAskedForIsAudit) {
    v1::Event event;
    event.mutable_action()->set_action("kill-sandbox");
    EXPECT_EQ(ClassOf(Serialised(event).bytes), "findings");
    event.mutable_action()->set_actor_uid(0);
    EXPECT_EQ(ClassOf(Serialised(event).bytes), "audit") << "root as well";
}

TEST(Format, TheKeyIsTheSessionThenTheSandboxThenTheNode) {
    v1::Event event;
    event.set_node("n1");
    EXPECT_EQ(KeyOf(Serialised(event).bytes), "n1");
    event.mutable_sandbox()->set_id("sbx_1");
    EXPECT_EQ(KeyOf(Serialised(event).bytes), "sbx_1");
    event.mutable_sandbox()->set_session("s-1");
    EXPECT_EQ(KeyOf(Serialised(event).bytes), "s-1");
}

TEST(CloudEvents, HeadersAreThoseOfTheKafkaBinding) {
    v1::Event event;
    event.set_id("sbx_1.7");
    event.set_node("rack 1/n\xc3\xa4");
    event.set_kind("exec");
    event.mutable_time()->set_seconds(0);
    event.mutable_sandbox()->set_id("sbx_1");
    event.mutable_sandbox()->set_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    const Serialised serialised(event);
    const Headers headers = CloudEventHeaders(serialised.bytes, Format::kOcsf);
    const std::map<std::string, std::string> by_name(headers.begin(), headers.end());
    EXPECT_EQ(by_name.size(), headers.size());
    EXPECT_EQ(by_name, (std::map<std::string, std::string>{
                           {"ce_specversion", "1.0"},
                           {"ce_id", "sbx_1.7"},
                           {"ce_source", "/stockade/node/rack%201%2Fn%C3%A4"},
                           {"ce_type", "dev.stockade.event.exec.v1"},
                           {"ce_time", "1970-01-01T00:00:00.000000000Z"},
                           {"ce_subject", "sbx_1"},
                           {"ce_partitionkey", "sbx_1"},
                           {"ce_traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
                           {"ce_dataschema", "https://schema.ocsf.io/1.8.0"},
                           {"content-type", "application/json"},
                       }));
    // What CloudEvents requires is there even for an event without anything.
    for (const auto& [name, value] : CloudEventHeaders(model::EventBytes(), Format::kNative)) {
        EXPECT_NE(name, "ce_dataschema");
        EXPECT_FALSE(value.empty() && (name == "ce_source" || name == "ce_type" || name == "ce_specversion"));
    }
}

}  // namespace
}  // namespace stockade::exporters
