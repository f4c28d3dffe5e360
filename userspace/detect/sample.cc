#include "userspace/detect/sample.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/model/text.h"

namespace stockade::detect {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

Status Misfit(const Field& field, absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat("'", field.path, "' takes ", wanted));
}

Status SetNumber(const Field& field, const std::string& value, Message* holder) {
    const FieldDescriptor* leaf = field.steps.back();
    const auto* reflection = holder->GetReflection();
    uint64_t number = 0;
    int64_t negative = 0;
    if (field.user && value == "root") return reflection->SetUInt32(holder, leaf, 0), absl::OkStatus();
    switch (leaf->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
            if (!absl::SimpleAtoi(value, &negative)) return Misfit(field, "a number");
            return reflection->SetInt32(holder, leaf, static_cast<int32_t>(negative)), absl::OkStatus();
        case FieldDescriptor::CPPTYPE_UINT32:
            if (!absl::SimpleAtoi(value, &number) || number > UINT32_MAX)
                return Misfit(field, "a number of 32 bits");
            return reflection->SetUInt32(holder, leaf, static_cast<uint32_t>(number)), absl::OkStatus();
        case FieldDescriptor::CPPTYPE_UINT64:
            if (!absl::SimpleAtoi(value, &number)) return Misfit(field, "a number");
            return reflection->SetUInt64(holder, leaf, number), absl::OkStatus();
        default:
            return Misfit(field, "nothing in a sample");
    }
}

// As the decoder writes texts: escaped where they hold what cannot be printed.
std::string Written(const std::string& value, const Field& field, Message* holder) {
    std::string out;
    if (!model::AppendEscaped(value, &out)) return out;
    if (field.escaped != nullptr) holder->GetReflection()->SetBool(holder, field.escaped, true);
    if (field.detail != nullptr)
        static_cast<v1::PathDetail*>(holder->GetReflection()->MutableMessage(holder, field.detail))
            ->set_escaped(true);
    return out;
}

Status SetText(const Field& field, const std::vector<std::string>& values, Message* holder) {
    const FieldDescriptor* leaf = field.steps.back();
    const auto* reflection = holder->GetReflection();
    if (!leaf->is_repeated()) {
        if (values.size() != 1) return Misfit(field, "one value");
        reflection->SetString(holder, leaf, Written(values[0], field, holder));
        return absl::OkStatus();
    }
    bool escape = false;
    for (const std::string& value : values) escape = escape || !model::IsPrintable(value);
    for (const std::string& value : values) {
        std::string out = Written(value, field, holder);
        // One flag for all: backslashes of the others are doubled too.
        if (escape && model::IsPrintable(value)) {
            out.clear();
            for (char c : value) out.append(c == '\\' ? 2 : 1, c);
        }
        reflection->AddString(holder, leaf, out);
    }
    return absl::OkStatus();
}

Message* HolderOf(const Field& field, v1::Event* event) {
    Message* holder = event;
    for (size_t i = 0; i + 1 < field.steps.size(); ++i) {
        const FieldDescriptor* step = field.steps[i];
        const auto* reflection = holder->GetReflection();
        if (!step->is_repeated()) {
            holder = reflection->MutableMessage(holder, step);
        } else if (reflection->FieldSize(*holder, step) > 0) {
            holder = reflection->MutableRepeatedMessage(holder, step, 0);
        } else {
            holder = reflection->AddMessage(holder, step);
        }
    }
    return holder;
}

}  // namespace

v1::Event BlankEvent(const Source& source) {
    v1::Event event;
    // A fixed moment: whatever depends on the hour says so.
    event.mutable_time()->set_seconds(
        absl::ToUnixSeconds(absl::FromCivil(absl::CivilSecond(2026, 1, 5, 12, 0, 0), absl::UTCTimeZone())));
    event.set_node("node");
    event.mutable_sandbox()->set_id("sbx_sample");
    event.mutable_process()->set_pid(100);
    event.mutable_process()->set_start_boot_ns(1);
    event.mutable_process()->set_uid(1000);
    event.set_verdict(source.category == "violation" ? "deny" : "allow");
    const std::string& category = source.category;
    if (category == "process_creation") event.mutable_exec()->set_role("program");
    if (category == "library_load") event.mutable_exec()->set_role("mapped");
    if (category == "file_event") event.mutable_file()->set_op("create");
    if (category == "file_access") event.mutable_file()->set_op("open-read");
    if (category == "file_delete") event.mutable_file()->set_op("unlink");
    if (category == "file_rename") event.mutable_file()->set_op("rename");
    if (category == "network_connection") {
        event.mutable_net()->set_op("connect");
        event.mutable_net()->set_protocol("tcp");
    }
    if (category == "dns_query" || category == "dns") event.mutable_dns()->set_type("A");
    if (category == "escape") event.mutable_escape();
    if (category == "lifecycle") event.mutable_lifecycle();
    if (category == "file") event.mutable_file();
    if (category == "network") event.mutable_net();
    if (category == "fork") event.mutable_fork();
    if (category == "exit") event.mutable_exit();
    return event;
}

Status SetField(const Field& field, const std::vector<std::string>& values, v1::Event* event) {
    if (field.kind == Field::Kind::kUnrecorded || !field.constant.empty())
        return absl::InvalidArgumentError(
            absl::StrCat("'", field.path, "' is in no event: a sample cannot have it"));
    if (!field.map_key.empty()) {
        if (values.size() != 1) return Misfit(field, "one value");
        (*event->mutable_sandbox()->mutable_labels())[field.map_key] = values[0];
        return absl::OkStatus();
    }
    Message* holder = HolderOf(field, event);
    if (field.kind == Field::Kind::kText) return SetText(field, values, holder);
    if (values.size() != 1) return Misfit(field, "one value");
    switch (field.kind) {
        case Field::Kind::kBool:
            if (values[0] != "true" && values[0] != "false") return Misfit(field, "true or false");
            holder->GetReflection()->SetBool(holder, field.steps.back(), values[0] == "true");
            return absl::OkStatus();
        case Field::Kind::kTime: {
            absl::Time time;
            std::string error;
            if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", values[0], absl::UTCTimeZone(), &time, &error) &&
                !absl::ParseTime(absl::RFC3339_full, values[0], &time, &error))
                return Misfit(field, "a time as 2026-01-05 12:00:00");
            auto* stamp = static_cast<google::protobuf::Timestamp*>(
                holder->GetReflection()->MutableMessage(holder, field.steps.back()));
            stamp->set_seconds(absl::ToUnixSeconds(time));
            stamp->set_nanos(static_cast<int32_t>(
                absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(stamp->seconds()))));
            return absl::OkStatus();
        }
        default:
            return SetNumber(field, values[0], holder);
    }
}

}  // namespace stockade::detect
