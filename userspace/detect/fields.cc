#include "userspace/detect/fields.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/options.pb.h"

namespace stockade::detect {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// No message of event.proto holds itself; this is for one that will.
constexpr size_t kMaxSteps = 4;
constexpr absl::string_view kLabels = "sandbox.labels.";

size_t NextNumber() {
    static std::atomic<size_t> next{0};
    return next++;
}

const v1::FieldInfo& InfoOf(const FieldDescriptor* field) { return field->options().GetExtension(v1::field); }

Field::Kind KindOf(const FieldDescriptor* field) {
    switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
            return Field::Kind::kText;
        case FieldDescriptor::CPPTYPE_BOOL:
            return Field::Kind::kBool;
        case FieldDescriptor::CPPTYPE_MESSAGE:
            return Field::Kind::kTime;
        default:
            return Field::Kind::kNumber;
    }
}

const FieldDescriptor* Beside(const FieldDescriptor* field, const std::string& suffix) {
    return field->containing_type()->FindFieldByName(absl::StrCat(field->name(), suffix));
}

class Fields {
  public:
    Fields() {
        std::vector<const FieldDescriptor*> steps;
        Walk(v1::Event::descriptor(), "", steps);
    }

    const Field* ByPath(absl::string_view path) {
        const auto it = by_path_.find(std::string(path));
        return it == by_path_.end() ? nullptr : it->second.get();
    }
    // The first field within a message ("exec", "process") with this Sigma name.
    const Field* BySigma(absl::string_view message, absl::string_view sigma) {
        const auto it = by_sigma_.find(absl::StrCat(message, " ", sigma));
        return it == by_sigma_.end() ? nullptr : it->second;
    }
    std::vector<std::string> SigmaNames(absl::string_view message) {
        std::vector<std::string> names;
        const std::string prefix = absl::StrCat(message, " ");
        for (const auto& [key, field] : by_sigma_) {
            if (absl::StartsWith(key, prefix)) names.push_back(key.substr(prefix.size()));
        }
        return names;
    }

  private:
    const Field* Add(Field field) {
        std::unique_ptr<Field>& slot = by_path_[field.path];
        if (slot == nullptr) {
            field.number = NextNumber();
            slot = std::make_unique<Field>(std::move(field));
        }
        return slot.get();
    }

    void Walk(const Descriptor* type, const std::string& prefix, std::vector<const FieldDescriptor*>& steps) {
        for (int i = 0; i < type->field_count(); ++i) {
            const FieldDescriptor* field = type->field(i);
            steps.push_back(field);
            const std::string path = absl::StrCat(prefix, field->name());
            const bool time =
                field->message_type() != nullptr && field->message_type()->name() == "Timestamp";
            if (field->message_type() != nullptr && !time && !field->is_map()) {
                if (steps.size() < kMaxSteps) Walk(field->message_type(), path + ".", steps);
            } else if (!field->is_map()) {
                AddLeaf(path, prefix, steps);
            }
            steps.pop_back();
        }
    }

    void AddLeaf(const std::string& path, const std::string& prefix,
                 const std::vector<const FieldDescriptor*>& steps) {
        const FieldDescriptor* leaf = steps.back();
        const v1::FieldInfo& info = InfoOf(leaf);
        Field field{.path = path, .kind = KindOf(leaf), .steps = steps};
        field.joined = leaf->is_repeated() && info.secrecy() == v1::SECRET_BEARING;
        field.user = info.sigma() == "User";
        field.port = info.unit() == "port";
        field.zero_is_absent = !field.user && (field.port || info.unit() == "id" || info.unit() == "ns");
        FindDetails(leaf, &field);
        const Field* added = Add(field);
        if (info.sigma().empty() || info.sigma() == "-") return;
        std::string message = prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1);
        if (message == "process.ancestry") {
            // The parent's names are of the first ancestor; the path is of any.
            field.path = absl::StrCat(path, "[0]");
            field.first_only = true;
            added = Add(field);
            message = "process";
        }
        by_sigma_.emplace(absl::StrCat(message, " ", info.sigma()), added);
    }

    std::map<std::string, std::unique_ptr<Field>> by_path_;
    std::map<std::string, const Field*> by_sigma_;
};

// Names of our own for what belongs to every event.
constexpr std::pair<const char*, const char*> kOwnNames[] = {
    {"SandboxId", "sandbox.id"},
    {"SessionId", "sandbox.session"},
    {"ToolName", "sandbox.tool"},
    {"TraceId", "sandbox.trace"},
    {"Runtime", "sandbox.runtime"},
    {"PolicyName", "policy.name"},
    {"Verdict", "verdict"},
    {"Outcome", "outcome"},
    {"Lock", "lock"},
    {"ReasonCode", "code"},
    {"DryRun", "dry_run"},
    {"Entered", "entered"},
};

// Sigma's names of what no record of ours carries.
struct Unrecorded {
    const char* message;
    std::vector<std::string> names;
};
const std::vector<Unrecorded>& UnrecordedTable() {
    static const auto* const table = new std::vector<Unrecorded>{
        {"exec",
         {"ParentUser", "LogonId", "LogonGuid", "Hashes", "md5", "sha1", "sha256", "Imphash",
          "OriginalFileName", "TerminalSessionId", "IntegrityLevel", "ProcessGuid", "ParentProcessGuid"}},
        // Only an exec's event carries what its parent was started with.
        {"file", {"ParentCommandLine", "CreationUtcTime", "ProcessGuid", "SourceFilename"}},
        {"net",
         {"ParentCommandLine", "SourceIp", "SourcePort", "SourceHostname", "SourceIsIpv6", "ProcessGuid"}},
        {"dns", {"ParentCommandLine", "QueryStatus", "QueryResults", "answer", "ProcessGuid"}}};
    return *table;
}

Fields& Table() {
    static auto* const fields = new Fields;
    return *fields;
}

// Fields that exist once a rule names them. Rules may be loaded while others are at work.
const Field* Extra(Field field) {
    static auto* const mutex = new std::mutex;
    static auto* const extra = new std::map<std::string, std::unique_ptr<Field>>;
    const std::lock_guard lock(*mutex);
    std::unique_ptr<Field>& slot = (*extra)[field.path];
    if (slot == nullptr) {
        field.number = NextNumber();
        slot = std::make_unique<Field>(std::move(field));
    }
    return slot.get();
}

const char* MessageOf(v1::Event::PayloadCase payload) {
    const FieldDescriptor* field = v1::Event::descriptor()->FindFieldByNumber(payload);
    return field == nullptr ? "" : field->name().c_str();
}

// What is the same under another name, or in all events of a payload.
const Field* Special(absl::string_view message, absl::string_view name) {
    // Connections are recorded where the sandbox begins them.
    if (message == "net" && name == "Initiated") return Extra({.path = "(Initiated)", .constant = "true"});
    if (message == "dns" && name == "QueryName") return Table().BySigma("dns", "query");
    // A connection goes to an address. Where no answer led there nobody knows its name: "none" would be an answer.
    if (message == "net" && name == "DestinationHostname") {
        Field field = *Table().BySigma("net", "DestinationHostname");
        field.path = "(DestinationHostname)";
        field.empty_is_unknown = true;
        return Extra(std::move(field));
    }
    return nullptr;
}

const Field* OfLabels(absl::string_view name) {
    if (!absl::StartsWith(name, kLabels) || name.size() == kLabels.size()) return nullptr;
    const Descriptor* event = v1::Event::descriptor();
    const FieldDescriptor* sandbox = event->FindFieldByName("sandbox");
    return Extra({.path = std::string(name),
                  .kind = Field::Kind::kText,
                  .steps = {sandbox, sandbox->message_type()->FindFieldByName("labels")},
                  .map_key = std::string(name.substr(kLabels.size()))});
}

const Field* FindUnrecorded(absl::string_view message, absl::string_view name) {
    for (const Unrecorded& row : UnrecordedTable()) {
        if (row.message != message) continue;
        for (const std::string& known : row.names) {
            if (known == name)
                return Extra({.path = absl::StrCat("(", known, ")"), .kind = Field::Kind::kUnrecorded});
        }
    }
    return nullptr;
}

}  // namespace

// Who else in the message speaks of it. `escaped` without a name in front is of what stands before it.
void FindDetails(const FieldDescriptor* field, Field* out) {
    out->detail = Beside(field, "_detail");
    out->truncated = Beside(field, "_truncated");
    out->escaped = Beside(field, "_escaped");
    // Of an exec's own arguments it is a count, and the event says so itself.
    if (const FieldDescriptor* redacted = Beside(field, "_redacted");
        redacted != nullptr && redacted->cpp_type() == FieldDescriptor::CPPTYPE_BOOL)
        out->redacted = redacted;
    const FieldDescriptor* common = field->containing_type()->FindFieldByName("escaped");
    const v1::FieldInfo& info = InfoOf(field);
    // It says which ones it is about: "comm holds escapes", "unix_path or tls_name holds escapes".
    if (out->escaped == nullptr && common != nullptr &&
        absl::StrContains(InfoOf(common).doc(), field->name()) && info.secrecy() != v1::PLAIN)
        out->escaped = common;
}

const Field* FindField(const Source& source, absl::string_view name) {
    const std::vector<v1::Event::PayloadCase> payloads = PayloadsOf(source);
    // Of several payloads (violation) a Sigma name of one of them would mean another field in each.
    if (payloads.size() == 1) {
        const char* message = MessageOf(payloads[0]);
        if (const Field* field = Special(message, name)) return field;
        if (const Field* field = Table().BySigma(message, name)) return field;
        if (const Field* field = FindUnrecorded(message, name)) return field;
    }
    if (const Field* field = Table().BySigma("process", name)) return field;
    if (const Field* field = Table().BySigma("", name)) return field;
    for (const auto& [own, path] : kOwnNames) {
        if (name == own) return Table().ByPath(path);
    }
    if (const Field* field = Table().ByPath(name)) return field;
    return OfLabels(name);
}

std::vector<std::string> FieldNames(const Source& source) {
    std::vector<std::string> names = Table().SigmaNames("process");
    const std::vector<v1::Event::PayloadCase> payloads = PayloadsOf(source);
    if (payloads.size() == 1) {
        for (std::string& name : Table().SigmaNames(MessageOf(payloads[0]))) names.push_back(std::move(name));
        if (payloads[0] == v1::Event::kDns) names.push_back("QueryName");
    }
    for (std::string& name : Table().SigmaNames("")) names.push_back(std::move(name));
    for (const auto& [own, path] : kOwnNames) names.push_back(own);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::vector<std::string> UnrecordedNames(const Source& source) {
    const std::vector<v1::Event::PayloadCase> payloads = PayloadsOf(source);
    for (const Unrecorded& row : UnrecordedTable()) {
        if (payloads.size() == 1 && row.message == std::string(MessageOf(payloads[0]))) return row.names;
    }
    return {};
}

}  // namespace stockade::detect
