#include "userspace/k8s/evidence.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stockade::k8s {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr char kRedacted[] = "(redacted)";

void RedactEnvironment(Value* list) {
    for (Value& variable : *list->mutable_list_value()->mutable_values()) {
        if (variable.kind_case() != Value::kStructValue) continue;
        auto& fields = *variable.mutable_struct_value()->mutable_fields();
        if (const auto it = fields.find("value"); it != fields.end()) it->second.set_string_value(kRedacted);
    }
}

// Depth is bounded by protobuf's reader.
void Redact(Value* value) {
    if (value->kind_case() == Value::kListValue) {
        for (Value& item : *value->mutable_list_value()->mutable_values()) Redact(&item);
    }
    if (value->kind_case() != Value::kStructValue) return;
    const bool secret = Node(value).Text("kind") == "Secret";
    for (auto& [key, inner] : *value->mutable_struct_value()->mutable_fields()) {
        if (key == "env" && inner.kind_case() == Value::kListValue) RedactEnvironment(&inner);
        else if (absl::EndsWith(key, "last-applied-configuration") || (secret && (key == "data" || key == "stringData"))) inner.set_string_value(kRedacted);
        else Redact(&inner);
    }
}

StatusOr<std::string> Written(const Value& value) {
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    const auto status = google::protobuf::util::MessageToJsonString(value, &json, options);
    if (!status.ok()) return absl::InternalError(absl::StrCat("write JSON: ", std::string(status.message())));
    return json;
}

Struct* Next(Value* list) { return list->mutable_list_value()->add_values()->mutable_struct_value(); }

void Set(Struct* out, const char* key, std::string text) { (*out->mutable_fields())[key].set_string_value(std::move(text)); }

Value* List(Struct* out, const char* key) {
    Value* list = &(*out->mutable_fields())[key];
    list->mutable_list_value();
    return list;
}

void SummariseContainer(const Object& pod, const Node& container, const char* kind, Struct* out) {
    Set(out, "name", container.Text("name"));
    Set(out, "kind", kind);
    Set(out, "image", container.Text("image"));
    const double user = container.Number("securityContext.runAsUser", pod.Number("spec.securityContext.runAsUser", -1));
    if (user >= 0) (*out->mutable_fields())["uid"].set_number_value(user);
    Value* mounts = List(out, "mounts");
    for (const Node& mount : container.Items("volumeMounts")) {
        Struct* one = Next(mounts);
        Set(one, "path", mount.Text("mountPath"));
        Set(one, "volume", mount.Text("name"));
        (*one->mutable_fields())["read_only"].set_bool_value(mount.Flag("readOnly", false));
    }
}

void SummarisePod(const Object& pod, Struct* out) {
    Set(out, "name", pod.name());
    Set(out, "uid", pod.Text("metadata.uid"));
    Set(out, "node", pod.Text("spec.nodeName"));
    Set(out, "runtime_class", pod.Text("spec.runtimeClassName"));
    Set(out, "phase", pod.Text("status.phase"));
    Value* conditions = List(out, "conditions");
    for (const Node& condition : pod.Items("status.conditions")) {
        Struct* one = Next(conditions);
        for (const char* key : {"type", "status", "reason", "message"}) Set(one, key, condition.Text(key));
    }
    Value* volumes = List(out, "volumes");
    for (const Node& volume : pod.Items("spec.volumes")) {
        Struct* one = Next(volumes);
        Set(one, "name", volume.Text("name"));
        for (const std::string& kind : volume.Keys(""))
            if (kind != "name") Set(one, "kind", kind);
    }
    Value* containers = List(out, "containers");
    for (const auto& [list, kind] : {std::pair("initContainers", "init"), std::pair("containers", "container"), std::pair("ephemeralContainers", "ephemeral")}) {
        for (const Node& container : pod.Items(absl::StrCat("spec.", list))) SummariseContainer(pod, container, kind, Next(containers));
    }
}

}  // namespace

StatusOr<std::string> Redacted(const std::string& json) {
    Value value;
    const auto status = google::protobuf::util::JsonStringToMessage(json, value.mutable_struct_value());
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("no JSON: ", std::string(status.message())));
    Redact(&value);
    return Written(value);
}

StatusOr<std::string> PodSummary(const ObjectSet& set) {
    Value value;
    Value* pods = List(value.mutable_struct_value(), "pods");
    for (const Object& pod : set.OfKind("Pod")) SummarisePod(pod, Next(pods));
    return Written(value);
}

}  // namespace stockade::k8s
