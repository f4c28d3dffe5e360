#include "userspace/contract/yaml_json.h"

#include "absl/strings/str_cat.h"
#include "userspace/contract/json_value.h"

namespace stockade::contract {
namespace {

// Bytes that are no UTF-8 stay as they are: who reads the JSON refuses them.
std::string Quoted(const std::string& text) {
    return JsonValue(text).dump(-1, ' ', false, JsonValue::error_handler_t::ignore);
}

std::string Scalar(const policy::YamlNode& node) {
    if (!node.quoted) {
        const StatusOr<JsonValue> value = ParseJsonValue(node.value, {.max_bytes = 64, .max_depth = 0});
        if (value.ok() && !value->is_string()) return node.value;
    }
    return Quoted(node.value);
}

}  // namespace

std::string JsonOfYaml(const policy::YamlNode& node) {
    using Kind = policy::YamlNode::Kind;
    if (node.kind == Kind::kNull) return "null";
    if (node.kind == Kind::kScalar) return Scalar(node);
    std::string out = node.kind == Kind::kMap ? "{" : "[";
    const size_t step = node.kind == Kind::kMap ? 2 : 1;
    for (size_t i = 0; i + step <= node.items.size(); i += step) {
        if (i > 0) out.push_back(',');
        if (node.kind == Kind::kMap) absl::StrAppend(&out, Quoted(node.items[i]->value), ":");
        out += JsonOfYaml(*node.items[i + step - 1]);
    }
    out.push_back(node.kind == Kind::kMap ? '}' : ']');
    return out;
}

}  // namespace stockade::contract
