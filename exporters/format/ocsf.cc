#include "exporters/format/ocsf.h"

#include <google/protobuf/timestamp.pb.h>

#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporters/format/json_tree.h"
#include "exporters/format/ocsf_class.h"
#include "userspace/model/json.h"
#include "userspace/model/options.pb.h"

namespace stockade::exporters {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int64_t kNanosPerMilli = 1'000'000;

// How a value is written, by what stands at its path.
enum class How {
    kText,  // string, as it is
    kNumber,
    kBool,
    kUid,        // OCSF's ids are strings
    kMillis,     // boot ns to wall ms
    kArguments,  // one command line
    kPairs,      // a map as "key=value" strings
    kAncestry,
    kEvidence,
    kNative,  // a list of messages, as in our own JSON
    kWallTime,
    kInto,  // a message whose fields have paths of their own
};

struct Plan {
    struct Field {
        const FieldDescriptor* descriptor;
        std::string path;
        How how;
        std::unique_ptr<Plan> plan;
    };
    std::vector<Field> fields;
};

absl::string_view Tail(absl::string_view path) { return path.substr(path.rfind('.') + 1); }

// "file.uid" inside of what is at "process.file" is at "process.file.uid".
std::string PathWithin(absl::string_view parent, absl::string_view path) {
    const size_t dot = path.find('.');
    if (!parent.empty() && dot != path.npos && path.substr(0, dot) == Tail(parent)) {
        return absl::StrCat(parent, path.substr(dot));
    }
    return std::string(path);
}

How HowOf(const FieldDescriptor& field, const std::string& path) {
    const absl::string_view tail = Tail(path);
    if (field.is_map()) return How::kPairs;
    if (field.message_type() == google::protobuf::Timestamp::descriptor()) return How::kWallTime;
    if (field.message_type()) {
        if (!field.is_repeated()) return How::kInto;
        return tail == "ancestry" ? How::kAncestry : How::kNative;
    }
    if (field.is_repeated()) return tail == "evidences" ? How::kEvidence : How::kArguments;
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
            return How::kText;
        case FieldDescriptor::CPPTYPE_BOOL:
            return How::kBool;
        default:
            break;
    }
    if (tail == "uid") return How::kUid;
    if (tail == "created_time" || tail == "start_time") return How::kMillis;
    return How::kNumber;
}

std::unique_ptr<Plan> MakePlan(const Descriptor* type, absl::string_view parent) {
    auto plan = std::make_unique<Plan>();
    for (int i = 0; i < type->field_count(); ++i) {
        const FieldDescriptor* field = type->field(i);
        Plan::Field row{field, PathWithin(parent, field->options().GetExtension(v1::field).ocsf()),
                        How::kText, nullptr};
        row.how = HowOf(*field, row.path);
        if (row.how == How::kInto) row.plan = MakePlan(field->message_type(), row.path);
        plan->fields.push_back(std::move(row));
    }
    return plan;
}

int64_t WallMillis(const v1::Event& event) {
    return event.time().seconds() * 1000 + event.time().nanos() / kNanosPerMilli;
}

int64_t MillisOfBoot(const v1::Event& event, uint64_t boot_ns) {
    const auto before = static_cast<int64_t>(event.boot_ns()) - static_cast<int64_t>(boot_ns);
    return WallMillis(event) - before / kNanosPerMilli;
}

std::string Quoted(absl::string_view text) {
    std::string out;
    model::AppendJsonString(text, &out);
    return out;
}

std::string Joined(const std::vector<std::string>& values) {
    std::string out = "[";
    for (const std::string& value : values) absl::StrAppend(&out, out.size() > 1 ? "," : "", value);
    return out + "]";
}

uint64_t NumberIn(const Message& message, const FieldDescriptor* field) {
    const auto& r = *message.GetReflection();
    switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_UINT32:
            return r.GetUInt32(message, field);
        case FieldDescriptor::CPPTYPE_UINT64:
            return r.GetUInt64(message, field);
        case FieldDescriptor::CPPTYPE_INT32:
            return static_cast<uint64_t>(int64_t{r.GetInt32(message, field)});
        default:
            return static_cast<uint64_t>(r.GetInt64(message, field));
    }
}

// Arguments with spaces in quotes, so that they can be told apart.
std::string CommandLine(const Message& message, const FieldDescriptor* field) {
    const auto& r = *message.GetReflection();
    std::string line;
    for (int i = 0; i < r.FieldSize(message, field); ++i) {
        const std::string argument = r.GetRepeatedString(message, field, i);
        const bool plain = !argument.empty() && argument.find_first_of(" \t'\"") == argument.npos;
        absl::StrAppend(&line, i > 0 ? " " : "", plain ? "" : "\"", argument, plain ? "" : "\"");
    }
    return Quoted(line);
}

std::string Ancestry(const v1::Event& event) {
    static const FieldDescriptor* const argv = v1::Ancestor::descriptor()->FindFieldByName("argv");
    std::vector<std::string> rows;
    for (const v1::Ancestor& ancestor : event.process().ancestry()) {
        JsonTree row;
        row.SetNumber("pid", ancestor.pid());
        row.SetString("uid", absl::StrCat(ancestor.pid(), ".", ancestor.start_boot_ns()));
        if (ancestor.start_boot_ns() != 0)
            row.SetNumber("created_time", MillisOfBoot(event, ancestor.start_boot_ns()));
        if (!ancestor.exe().empty()) row.SetString("path", ancestor.exe());
        if (ancestor.argv_size() > 0) row.Set("cmd_line", CommandLine(ancestor, argv));
        row.Append(&rows.emplace_back());
    }
    return Joined(rows);
}

std::string Evidence(const v1::Event& event) {
    std::vector<std::string> rows;
    for (const std::string& id : event.finding().evidence()) {
        JsonTree row;
        row.SetString("uid", id);
        row.SetString("data.event", id);
        row.Append(&rows.emplace_back());
    }
    return Joined(rows);
}

std::string Pairs(const v1::Event& event) {
    const std::map<std::string, std::string> sorted(event.sandbox().labels().begin(),
                                                    event.sandbox().labels().end());
    std::vector<std::string> rows;
    for (const auto& [key, value] : sorted) rows.push_back(Quoted(absl::StrCat(key, "=", value)));
    return Joined(rows);
}

std::string Native(const Message& message, const FieldDescriptor* field) {
    const auto& r = *message.GetReflection();
    std::vector<std::string> rows;
    for (int i = 0; i < r.FieldSize(message, field); ++i) {
        model::AppendJson(r.GetRepeatedMessage(message, field, i), &rows.emplace_back());
    }
    return Joined(rows);
}

bool IsSet(const Message& message, const FieldDescriptor* field) {
    const auto& r = *message.GetReflection();
    return field->is_repeated() ? r.FieldSize(message, field) > 0 : r.HasField(message, field);
}

void Fill(const v1::Event& event, const Message& message, const Plan& plan, JsonTree* out) {
    const auto& r = *message.GetReflection();
    for (const Plan::Field& field : plan.fields) {
        const FieldDescriptor* f = field.descriptor;
        if (!IsSet(message, f)) continue;
        switch (field.how) {
            case How::kText:
                out->SetString(field.path, r.GetString(message, f));
                break;
            case How::kNumber:
                out->SetNumber(field.path, static_cast<int64_t>(NumberIn(message, f)));
                break;
            case How::kBool:
                out->Set(field.path, r.GetBool(message, f) ? "true" : "false");
                break;
            case How::kUid:
                out->SetString(field.path, absl::StrCat(NumberIn(message, f)));
                break;
            case How::kMillis:
                out->SetNumber(field.path, MillisOfBoot(event, NumberIn(message, f)));
                break;
            case How::kArguments:
                out->Set(field.path, CommandLine(message, f));
                break;
            case How::kPairs:
                out->Set(field.path, Pairs(event));
                break;
            case How::kAncestry:
                out->Set(field.path, Ancestry(event));
                break;
            case How::kEvidence:
                out->Set(field.path, Evidence(event));
                break;
            case How::kNative:
                out->Set(field.path, Native(message, f));
                break;
            case How::kInto:
                Fill(event, r.GetMessage(message, f), *field.plan, out);
                break;
            case How::kWallTime: {
                std::string text;
                model::AppendJson(r.GetMessage(message, f), &text);
                out->Set(field.path, std::move(text));
                break;
            }
        }
    }
}

// --- what OCSF asks for itself ---

bool IsRefusal(const v1::Event& event) {
    return event.verdict() == "deny" || event.verdict() == "kill-process" ||
           event.verdict() == "kill-sandbox";
}

void SetSeverity(const v1::Event& event, JsonTree* out) {
    static constexpr struct {
        absl::string_view word;
        absl::string_view caption;
    } kSeverities[] = {{"", "Unknown"},      {"info", "Informational"}, {"low", "Low"},
                       {"medium", "Medium"}, {"high", "High"},          {"critical", "Critical"}};
    size_t id = 1;
    if (event.has_finding()) {
        id = 0;
        for (size_t i = 1; i < std::size(kSeverities); ++i) {
            if (kSeverities[i].word == event.finding().severity()) id = i;
        }
    } else if (event.has_lost()) {
        id = 3;
    } else if (IsRefusal(event) && !event.dry_run()) {
        id = event.verdict() == "deny" ? 3 : 4;
    }
    out->SetNumber("severity_id", static_cast<int64_t>(id));
    out->SetString("severity", kSeverities[id].caption);
}

void SetDisposition(const v1::Event& event, JsonTree* out) {
    if (event.verdict().empty()) return;
    const bool refused = IsRefusal(event);
    // Not refused though the policy says so: a dry run, or seen where nothing could be done.
    const bool logged =
        event.verdict() == "observe" || (refused && (event.dry_run() || event.outcome() == "seen"));
    out->SetNumber("action_id", logged ? 3 : refused ? 2 : 1);
    out->SetString("action", logged ? "Observed" : refused ? "Denied" : "Allowed");
    out->SetNumber("disposition_id", logged ? 17 : refused ? 2 : 1);
    out->SetString("disposition", logged ? "Logged" : refused ? "Blocked" : "Allowed");
    if (refused) out->Set("is_alert", "true");
    // The status of a finding or a remedy is another thing than that of an operation.
    if (event.outcome().empty() || event.has_finding() || event.has_lifecycle()) return;
    const bool failed = event.outcome() == "prevented";
    out->SetNumber("status_id", failed ? 2 : 1);
    out->SetString("status", failed ? "Failure" : "Success");
}

void SetActor(const v1::Event& event, JsonTree* out) {
    if (event.process().pid() != 0) {
        out->SetString("actor.process.uid",
                       absl::StrCat(event.process().pid(), ".", event.process().start_boot_ns()));
        if (!event.process().exe().empty()) {
            const std::string& exe = event.process().exe();
            out->SetString("actor.process.file.name", exe.substr(exe.rfind('/') + 1));
            out->SetNumber("actor.process.file.type_id", 0);
        }
        if (!event.sandbox().id().empty()) out->SetString("actor.process.sandbox", event.sandbox().id());
    } else {
        out->SetString("actor.app_name", "Stockade");
    }
}

void SetFileName(absl::string_view at, const std::string& path, JsonTree* out) {
    const std::string name = path.substr(path.rfind('/') + 1);
    out->SetString(absl::StrCat(at, ".name"), name.empty() ? path : name);
    out->SetNumber(absl::StrCat(at, ".type_id"), 0);
}

void SetProcess(const v1::Event& event, JsonTree* out) {
    if (event.has_exec()) {
        SetFileName("process.file", event.exec().path(), out);
        out->SetNumber("launch_type_id", 3);
        out->SetString("launch_type", "Exec");
    } else if (event.has_fork()) {
        out->SetNumber("launch_type_id", 2);
        out->SetString("launch_type", "Fork");
    }
    // Who does it to itself, unless it was aimed at another.
    if (!out->Has("process.pid")) out->SetNumber("process.pid", event.process().pid());
}

void SetNetwork(const v1::Event& event, JsonTree* out) {
    if (event.has_dns()) {
        if (event.dns().name().empty()) out->SetString("query.hostname", "");
        out->SetString("src_endpoint.hostname", event.node());
        return;
    }
    const v1::Net& net = event.net();
    const bool inbound = net.op() == "listen" || net.op() == "bind" || net.op() == "receive-fd";
    out->SetNumber("connection_info.direction_id", net.family() == "unix" ? 4 : inbound ? 1 : 2);
    if (net.family() == "inet" || net.family() == "inet6") {
        out->SetNumber("connection_info.protocol_ver_id", net.family() == "inet" ? 4 : 6);
        out->SetString("connection_info.protocol_ver", net.family() == "inet"
                                                           ? "Internet Protocol version 4 (IPv4)"
                                                           : "Internet Protocol version 6 (IPv6)");
    } else {
        out->SetNumber("connection_info.protocol_ver_id", kOcsfOther);
    }
    // A port without an address names no endpoint.
    if (out->Has("dst_endpoint.port") && net.address().empty())
        out->SetString("dst_endpoint.name", net.family());
    if (!net.unix_path().empty()) out->SetString("dst_endpoint.name", net.unix_path());
    out->SetString("src_endpoint.hostname", event.node());
}

void SetFinding(const v1::Event& event, JsonTree* out) {
    out->SetString("finding_info.uid", event.id());
    out->SetNumber("status_id", 1);
    out->SetString("status", "New");
    out->SetNumber("finding_info.analytic.type_id", 1);
    out->SetString("finding_info.analytic.type", "Rule");
    if (event.finding().rule().empty()) out->SetString("finding_info.analytic.name", "Stockade");
    out->Set("is_alert", "true");
}

void SetRequired(const v1::Event& event, OcsfClassUid uid, JsonTree* out) {
    out->SetNumber("device.type_id", 0);
    switch (uid) {
        case kProcessActivity:
            SetProcess(event, out);
            break;
        case kFileActivity:
            SetFileName("file", event.file().path(), out);
            break;
        case kNetworkActivity:
        case kDnsActivity:
            SetNetwork(event, out);
            break;
        case kDetectionFinding:
            SetFinding(event, out);
            break;
        case kRemediationActivity:
            out->SetString("command_uid", event.id());
            break;
        case kApplicationLifecycle:
            out->SetString("app.name", event.has_agent() ? "Stockade" : "sandbox");
            if (event.has_agent() && !event.agent().version().empty())
                out->SetString("app.version", event.agent().version());
            if (event.has_lifecycle()) out->SetString("app.uid", event.sandbox().id());
            break;
        case kDeviceConfigStateChange:
        case kBaseEvent:
            break;
    }
}

void SetHead(const v1::Event& event, const OcsfActivity& activity, JsonTree* out) {
    const std::string op = out->Get("activity_name");  // what the fields said
    const uint32_t category = activity.class_uid / 1000;
    out->SetNumber("category_uid", category);
    out->SetString("category_name", OcsfCategoryName(activity.class_uid));
    out->SetNumber("class_uid", activity.class_uid);
    out->SetString("class_name", OcsfClassName(activity.class_uid));
    out->SetNumber("activity_id", activity.activity_id);
    out->SetNumber("type_uid", int64_t{activity.class_uid} * 100 + activity.activity_id);
    if (!op.empty()) out->Set("unmapped.op", op);
    if (!activity.activity.empty())
        out->SetString("activity_name", activity.activity);
    else if (op.empty())
        out->SetString("activity_name", event.kind().empty() ? "event" : event.kind());
    out->SetNumber("time", WallMillis(event));
    out->SetString("metadata.version", kOcsfVersion);
    out->SetString("metadata.product.name", "Stockade");
    out->SetString("metadata.product.vendor_name", "Stockade");
    out->Set("metadata.profiles", "[\"host\",\"container\",\"security_control\",\"datetime\"]");
    if (!event.reason().empty()) out->SetString("message", event.reason());
}

}  // namespace

void AppendOcsf(const v1::Event& event, std::string* out) {
    static const Plan* const plan = MakePlan(v1::Event::descriptor(), "").release();
    JsonTree tree;
    const OcsfActivity activity = OcsfActivityOf(event);
    Fill(event, event, *plan, &tree);
    SetHead(event, activity, &tree);
    SetSeverity(event, &tree);
    SetDisposition(event, &tree);
    SetActor(event, &tree);
    SetRequired(event, activity.class_uid, &tree);
    tree.Append(out);
}

std::string ToOcsf(const v1::Event& event) {
    std::string out;
    AppendOcsf(event, &out);
    return out;
}

}  // namespace stockade::exporters
