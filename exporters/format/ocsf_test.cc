// Everything that we write as OCSF, beside the tables of the published schema.
#include "exporters/format/ocsf.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporters/format/ocsf_class.h"
#include "userspace/base/fd.h"
#include "userspace/model/names.h"
#include "userspace/model/options.pb.h"

namespace stockade::exporters {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Struct;
using google::protobuf::Value;

Struct Parse(const std::string& json) {
    Struct out;
    const auto status = google::protobuf::util::JsonStringToMessage(json, &out);
    EXPECT_TRUE(status.ok()) << json;
    return out;
}

const Struct& Tables() {
    static const Struct* const tables = new Struct(Parse(*ReadFile(
        absl::StrCat(getenv("STOCKADE_SOURCE_DIR"), "/exporters/format/data/ocsf-1.8.0.json"), 4 << 20)));
    return *tables;
}

const Struct& At(const Struct& object, const std::string& name) {
    return object.fields().at(name).struct_value();
}
bool Flag(const Struct& object, const std::string& name) {
    const auto found = object.fields().find(name);
    return found != object.fields().end() && found->second.bool_value();
}
std::string Text(const Struct& object, const std::string& name) {
    const auto found = object.fields().find(name);
    return found == object.fields().end() ? "" : found->second.string_value();
}

// Says what is wrong with `object` by the rows of a class or an object; empty = nothing.
class Checker {
  public:
    explicit Checker(const Struct& event) {
        for (const Value& profile : At(event, "metadata").fields().at("profiles").list_value().values()) {
            profiles_.insert(profile.string_value());
        }
    }

    void Check(const Struct& object, const Struct& rows, const std::string& where) {
        const Struct& attributes = At(rows, "attributes");
        for (const auto& [name, value] : object.fields()) {
            const auto row = attributes.fields().find(name);
            if (row == attributes.fields().end())
                Fail(where, name, "the schema has no such attribute");
            else if (!InProfile(row->second.struct_value()))
                Fail(where, name, "its profile is not declared");
            else
                CheckValue(value, row->second.struct_value(), absl::StrCat(where, ".", name));
            CheckCaption(object, attributes, name, where);
        }
        for (const auto& [name, row] : attributes.fields()) {
            if (Flag(row.struct_value(), "required") && InProfile(row.struct_value()) &&
                object.fields().count(name) == 0) {
                Fail(where, name, "is required");
            }
        }
        const auto& constraints = At(rows, "constraints").fields();
        if (const auto one = constraints.find("at_least_one"); one != constraints.end()) {
            bool found = false;
            for (const Value& name : one->second.list_value().values())
                found |= object.fields().count(name.string_value()) > 0;
            if (!found) Fail(where, "", "none of those of which one must be there");
        }
    }
    std::string problems;

  private:
    void Fail(const std::string& where, const std::string& name, const std::string& why) {
        absl::StrAppend(&problems, where, name.empty() ? "" : ".", name, ": ", why, "\n");
    }

    bool InProfile(const Struct& row) const {
        const auto found = row.fields().find("profiles");
        if (found == row.fields().end()) return true;
        for (const Value& profile : found->second.list_value().values()) {
            if (profiles_.count(profile.string_value()) > 0) return true;
        }
        return false;
    }

    void CheckValue(const Value& value, const Struct& row, const std::string& where) {
        if (!Flag(row, "array")) return CheckOne(value, row, where);
        if (value.kind_case() != Value::kListValue) return Fail(where, "", "is no array");
        for (const Value& element : value.list_value().values()) CheckOne(element, row, where + "[]");
    }

    void CheckOne(const Value& value, const Struct& row, const std::string& where) {
        const std::string type = Text(row, "type");
        if (Flag(row, "object")) {
            if (value.kind_case() != Value::kStructValue) return Fail(where, "", "is no object");
            if (type == "object") return;  // anything
            if (At(Tables(), "objects").fields().count(type) == 0)
                return Fail(where, "", "an object that the tables lack: " + type);
            return Check(value.struct_value(), At(At(Tables(), "objects"), type), where);
        }
        if (const auto words = row.fields().find("enum"); words != row.fields().end()) {
            const auto number = static_cast<int64_t>(value.number_value());
            if (words->second.struct_value().fields().count(absl::StrCat(number)) == 0)
                Fail(where, "", absl::StrCat(number, " is not in its list"));
        }
        if (type != "json_t") CheckScalar(value, type, where);
    }

    void CheckScalar(const Value& value, const std::string& type, const std::string& where) {
        const Struct& rule = At(At(Tables(), "types"), type);
        const std::string base = rule.fields().count("type") > 0 ? Text(rule, "type") : type;
        if (base == "string_t") {
            if (value.kind_case() != Value::kStringValue) return Fail(where, "", "is no string");
            const std::string regex = Text(rule, "regex");
            if (!regex.empty() && !std::regex_search(value.string_value(), std::regex(regex))) {
                Fail(where, "", absl::StrCat("is no ", type, ": ", value.string_value()));
            }
        } else if (base == "boolean_t") {
            if (value.kind_case() != Value::kBoolValue) Fail(where, "", "is no boolean");
        } else if (value.kind_case() != Value::kNumberValue ||
                   value.number_value() != static_cast<double>(static_cast<int64_t>(value.number_value()))) {
            Fail(where, "", "is no whole number");
        }
    }

    // `x` beside `x_id` is the caption of the number, unless that is Other.
    void CheckCaption(const Struct& object, const Struct& attributes, const std::string& name,
                      const std::string& where) {
        const auto id = object.fields().find(name == "activity_name" ? "activity_id" : name + "_id");
        const auto row = attributes.fields().find(name == "activity_name" ? "activity_id" : name + "_id");
        if (id == object.fields().end() || row == attributes.fields().end()) return;
        const auto number = static_cast<int64_t>(id->second.number_value());
        if (number == 99) return;
        const auto words = row->second.struct_value().fields().find("enum");
        if (words == row->second.struct_value().fields().end()) return;
        const std::string caption = Text(words->second.struct_value(), absl::StrCat(number));
        if (Text(object, name) != caption) Fail(where, name, absl::StrCat("is not \"", caption, "\""));
    }

    std::set<std::string> profiles_;
};

std::string ProblemsOf(const std::string& json) {
    const Struct event = Parse(json);
    const auto uid = static_cast<int64_t>(event.fields().at("class_uid").number_value());
    for (const auto& [name, rows] : At(Tables(), "classes").fields()) {
        if (static_cast<int64_t>(rows.struct_value().fields().at("uid").number_value()) != uid) continue;
        Checker checker(event);
        checker.Check(event, rows.struct_value(), name);
        return checker.problems;
    }
    return absl::StrCat("class ", uid, " is not in the tables");
}

// --- events with everything in them ---

std::string WordFor(const FieldDescriptor* field) {
    const auto table = model::TableNamed(field->options().GetExtension(v1::field).values());
    if (!table.empty()) return std::string(table.front().text);
    if (field->name() == "address" || field->name() == "server") return "2001:db8::1";
    if (field->name() == "path" || field->name() == "exe" || field->name() == "cwd") return "/usr/bin/x";
    return absl::StrCat("some ", field->name());
}

void FillAll(Message* message) {
    const auto& r = *message->GetReflection();
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
        const auto* f = message->GetDescriptor()->field(i);
        if (f->real_containing_oneof() && r.GetOneofFieldDescriptor(*message, f->containing_oneof()) != f)
            continue;
        if (f->message_type()) {
            if (f->is_map()) continue;
            FillAll(f->is_repeated() ? r.AddMessage(message, f) : r.MutableMessage(message, f));
            continue;
        }
        switch (f->cpp_type()) {
            case FieldDescriptor::CPPTYPE_STRING:
                if (f->is_repeated())
                    r.AddString(message, f, "a b");
                else
                    r.SetString(message, f, WordFor(f));
                break;
            case FieldDescriptor::CPPTYPE_BOOL:
                r.SetBool(message, f, true);
                break;
            case FieldDescriptor::CPPTYPE_UINT32:
                r.SetUInt32(message, f, 7);
                break;
            case FieldDescriptor::CPPTYPE_UINT64:
                r.SetUInt64(message, f, uint64_t{1} << 40);
                break;
            case FieldDescriptor::CPPTYPE_INT32:
                r.SetInt32(message, f, 7);
                break;
            case FieldDescriptor::CPPTYPE_INT64:
                r.SetInt64(message, f, 7);
                break;
            default:
                break;
        }
    }
}

// Each kind with each of its operations, under each verdict; `full` = every field set.
std::vector<v1::Event> Samples(bool full) {
    std::vector<v1::Event> out;
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) {
        const auto* kind = payload->field(i);
        v1::Event event;
        Message* inner = event.GetReflection()->MutableMessage(&event, kind);
        if (full) FillAll(&event);
        event.set_id("sbx_1.7");
        event.set_node("n1");
        event.set_boot_ns(uint64_t{1} << 41);
        event.mutable_time()->set_seconds(1'790'000'000);
        event.mutable_time()->set_nanos(123'456'789);
        event.set_kind(kind->name());
        if (full) (*event.mutable_sandbox()->mutable_labels())["team"] = "red";
        const auto* op = kind->message_type()->FindFieldByName("op");
        std::vector<std::string> ops = {""};
        if (op) {
            for (const auto& word : model::TableNamed(op->options().GetExtension(v1::field).values()))
                ops.emplace_back(word.text);
            for (const char* word : {"started", "stopping", "policy-loaded", "unheard-of"})
                ops.emplace_back(word);
        }
        for (const std::string& word : ops) {
            for (const auto& verdict : model::Verdicts()) {
                if (op) inner->GetReflection()->SetString(inner, op, word);
                event.set_verdict(std::string(verdict.text));
                event.set_outcome(verdict.text == "deny" ? "prevented" : "done");
                event.set_dry_run(full && verdict.text == "kill-process");
                out.push_back(event);
            }
        }
    }
    return out;
}

TEST(Ocsf, EveryKindIsWhatTheSchemaSays) {
    EXPECT_EQ(Text(Tables(), "version"), kOcsfVersion);
    std::set<std::string> classes;
    const char* keep = getenv("STOCKADE_OCSF_OUT");  // for another validator to read
    std::ofstream kept(keep ? keep : "/dev/null");
    for (const bool full : {true, false}) {
        int count = 0;
        for (const v1::Event& event : Samples(full)) {
            const std::string json = ToOcsf(event);
            EXPECT_EQ(ProblemsOf(json), "") << json;
            classes.insert(Text(Parse(json), "class_name"));
            kept << json << "\n";
            ++count;
        }
        EXPECT_GT(count, 300);
    }
    EXPECT_EQ(classes.size(), 9u);
}

// The checker is no rubber stamp.
TEST(Ocsf, TheCheckSeesWhatIsWrong) {
    v1::Event event;
    event.set_node("n1");
    event.mutable_file()->set_path("/a/b");
    const std::string good = ToOcsf(event);
    ASSERT_EQ(ProblemsOf(good), "") << good;
    const struct {
        const char* from;
        const char* to;
        const char* problem;
    } rows[] = {
        {"\"severity_id\":1", "\"severity_id\":9", "file_activity.severity_id: 9 is not in its list"},
        {"\"severity_id\":1", "\"sev\":1", "file_activity.severity_id: is required"},
        {"\"severity\":\"Informational\"", "\"severity\":\"High\"", "severity: is not \"Informational\""},
        {"\"name\":\"b\"", "\"name\":5", "file_activity.file.name: is no string"},
        {"\"container\",", "", ""},  // declares no profile that is not used
        {"\"security_control\",", "", ""},
        {"\"app_name\"", "\"app\"", "none of those of which one must be there"},
    };
    for (const auto& row : rows) {
        std::string bad = good;
        const size_t at = bad.find(row.from);
        ASSERT_NE(at, bad.npos) << row.from << " in " << good;
        bad.replace(at, strlen(row.from), row.to);
        EXPECT_THAT(ProblemsOf(bad), testing::HasSubstr(row.problem)) << bad;
    }
}

TEST(Ocsf, ARefusedOpenReadsAsAnAnalystExpects) {
    v1::Event event;
    event.set_id("sbx_1.7");
    event.set_node("n1");
    event.set_boot_ns(5'000'000'000);
    event.mutable_time()->set_seconds(1000);
    event.set_verdict("deny");
    event.set_outcome("prevented");
    event.set_code("files.not_allowed");
    event.set_reason("the policy does not allow: /root/.ssh/id");
    event.set_kernel_seq(7);
    event.mutable_sandbox()->set_id("sbx_1");
    event.mutable_sandbox()->set_session("s-1");
    event.mutable_policy()->set_name("python-tool");
    event.mutable_process()->set_pid(42);
    event.mutable_process()->set_start_boot_ns(3'000'000'000);
    event.mutable_process()->set_exe("/usr/bin/python3");
    event.mutable_process()->add_argv("python3");
    event.mutable_process()->add_argv("a b");
    event.mutable_file()->set_op("open-read");
    event.mutable_file()->set_path("/root/.ssh/id");
    const Struct ocsf = Parse(ToOcsf(event));
    EXPECT_EQ(Text(ocsf, "activity_name"), "Read");
    EXPECT_EQ(Text(ocsf, "disposition"), "Blocked");
    EXPECT_EQ(Text(ocsf, "severity"), "Medium");
    EXPECT_EQ(Text(ocsf, "status_code"), "files.not_allowed");
    EXPECT_EQ(Text(At(ocsf, "file"), "path"), "/root/.ssh/id");
    EXPECT_EQ(Text(At(ocsf, "policy"), "name"), "python-tool");
    EXPECT_EQ(Text(At(ocsf, "metadata"), "correlation_uid"), "s-1");
    EXPECT_EQ(At(ocsf, "metadata").fields().at("sequence").number_value(), 7);
    EXPECT_EQ(Text(At(At(ocsf, "device"), "container"), "uid"), "sbx_1");
    const Struct& process = At(At(ocsf, "actor"), "process");
    EXPECT_EQ(Text(process, "cmd_line"), "python3 \"a b\"");
    EXPECT_EQ(process.fields().at("created_time").number_value(), 998'000);  // two seconds before
    EXPECT_EQ(Text(process, "sandbox"), "sbx_1");
}

}  // namespace
}  // namespace stockade::exporters
