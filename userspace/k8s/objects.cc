#include "userspace/k8s/objects.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::k8s {
namespace {

using google::protobuf::Value;
using policy::YamlNode;

// What kubectl's reader of YAML takes for true and false, which is more than YAML 1.2 does: `hostNetwork: yes` is one.
bool IsWord(const std::string& text, std::initializer_list<absl::string_view> words) {
    const std::string lower = absl::AsciiStrToLower(text);
    return std::find(words.begin(), words.end(), lower) != words.end();
}

void FromScalar(const YamlNode& node, Value* out) {
    double number = 0;
    if (node.quoted || node.tag == "tag:yaml.org,2002:str" || node.tag == "!!str") {
        out->set_string_value(node.value);
    } else if (node.value.empty() || node.value == "~" || IsWord(node.value, {"null"})) {
        out->set_null_value(google::protobuf::NULL_VALUE);
    } else if (IsWord(node.value, {"true", "yes", "on", "y"})) {
        out->set_bool_value(true);
    } else if (IsWord(node.value, {"false", "no", "off", "n"})) {
        out->set_bool_value(false);
    } else if (node.value.find_first_not_of("+-.0123456789eE") == std::string::npos && absl::SimpleAtod(node.value, &number)) {
        out->set_number_value(number);
    } else {
        out->set_string_value(node.value);
    }
}

// What is wrong with a node, by its place.
Status Wrong(const std::string& name, const YamlNode& node, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":", node.line, ":", node.column, ": ", what));
}

// Depth is bounded by the reader (kMaxYamlDepth).
Status FromYaml(const std::string& name, const YamlNode& node, Value* out) {
    switch (node.kind) {
        case YamlNode::Kind::kNull: out->set_null_value(google::protobuf::NULL_VALUE); break;
        case YamlNode::Kind::kScalar: FromScalar(node, out); break;
        case YamlNode::Kind::kSequence:
            out->mutable_list_value();
            for (const policy::YamlPtr& item : node.items) SK_RETURN_IF_ERROR(FromYaml(name, *item, out->mutable_list_value()->add_values()));
            break;
        case YamlNode::Kind::kMap:
            out->mutable_struct_value();
            for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
                const YamlNode& key = *node.items[i];
                if (key.kind != YamlNode::Kind::kScalar)
                    return Wrong(name, key, "a key that is no text; templates have to be rendered first");
                auto& fields = *out->mutable_struct_value()->mutable_fields();
                // Which of the two an API server would keep is nobody's guess.
                if (fields.contains(key.value)) return Wrong(name, key, absl::StrCat("the key stands twice: ", key.value));
                SK_RETURN_IF_ERROR(FromYaml(name, *node.items[i + 1], &fields[key.value]));
            }
            break;
    }
    return absl::OkStatus();
}

bool IsObject(const Node& node) { return !node.Text("kind").empty() && !node.Text("apiVersion").empty(); }

// Objects, or the items of a list of them. Lists in lists do not exist.
void AddAll(Value value, const std::string& where, ObjectSet* out) {
    const Node node(&value);
    if (!IsObject(node)) {
        out->skipped.push_back(where);
        return;
    }
    const std::string kind = node.Text("kind");
    if (!absl::EndsWith(kind, "List") || !node.Get("items").exists()) {
        if (kind != "List") out->Add(std::move(value));
        return;
    }
    const std::string of(absl::StripSuffix(kind, "List"));
    const std::string version = node.Text("apiVersion");
    for (Value& item : *(*value.mutable_struct_value()->mutable_fields())["items"].mutable_list_value()->mutable_values()) {
        // Items of a typed list leave out what the list says of all.
        auto& fields = *item.mutable_struct_value()->mutable_fields();
        if (!of.empty() && Node(&item).Text("kind").empty()) {
            fields["kind"].set_string_value(of);
            fields["apiVersion"].set_string_value(version);
        }
        if (IsObject(Node(&item))) out->Add(std::move(item));
        else out->skipped.push_back(absl::StrCat(where, " (an item)"));
    }
}

Status ReadJson(const std::string& name, const std::string& text, ObjectSet* out) {
    Value value;
    const auto status = google::protobuf::util::JsonStringToMessage(text, value.mutable_struct_value());
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": no JSON: ", std::string(status.message())));
    AddAll(std::move(value), name, out);
    return absl::OkStatus();
}

}  // namespace

bool Node::exists() const {
    return value_ != nullptr && value_->kind_case() != Value::kNullValue && value_->kind_case() != Value::KIND_NOT_SET;
}

Node Node::Key(const std::string& key) const {
    if (!exists() || value_->kind_case() != Value::kStructValue) return Node();
    const auto it = value_->struct_value().fields().find(key);
    return it == value_->struct_value().fields().end() ? Node() : Node(&it->second);
}

Node Node::Get(absl::string_view path) const {
    Node node = *this;
    for (const absl::string_view step : absl::StrSplit(path, '.', absl::SkipEmpty())) node = node.Key(std::string(step));
    return node;
}

std::string Node::text() const {
    return exists() && value_->kind_case() == Value::kStringValue ? value_->string_value() : "";
}

std::string Node::Text(absl::string_view path) const { return Get(path).text(); }

bool Node::Flag(absl::string_view path, bool otherwise) const {
    const Node node = Get(path);
    return node.exists() && node.value_->kind_case() == Value::kBoolValue ? node.value_->bool_value() : otherwise;
}

double Node::Number(absl::string_view path, double otherwise) const {
    const Node node = Get(path);
    return node.exists() && node.value_->kind_case() == Value::kNumberValue ? node.value_->number_value() : otherwise;
}

std::vector<Node> Node::Items(absl::string_view path) const {
    std::vector<Node> items;
    const Node node = Get(path);
    if (!node.exists() || node.value_->kind_case() != Value::kListValue) return items;
    for (const Value& value : node.value_->list_value().values()) items.emplace_back(&value);
    return items;
}

std::vector<std::string> Node::Keys(absl::string_view path) const {
    std::vector<std::string> keys;
    const Node node = Get(path);
    if (!node.exists() || node.value_->kind_case() != Value::kStructValue) return keys;
    for (const auto& [key, value] : node.value_->struct_value().fields()) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return keys;
}

std::string Object::name() const {
    const std::string name = Text("metadata.name");
    return name.empty() ? absl::StrCat(Text("metadata.generateName"), "*") : name;
}

std::string Object::Called() const {
    return absl::StrCat(kind(), " ", space().empty() ? "" : absl::StrCat(space(), "/"), name());
}

void ObjectSet::Add(Value value) {
    const std::string kind = Node(&value).Text("kind");
    objects_[kind].push_back(std::move(value));
    ++size_;
}

std::vector<Object> ObjectSet::OfKind(absl::string_view kind) const {
    std::vector<Object> found;
    const auto it = objects_.find(kind);
    if (it == objects_.end()) return found;
    for (const Value& value : it->second) found.emplace_back(&value);
    return found;
}

Status ReadObjects(const std::string& name, const std::string& text, ObjectSet* out) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return absl::InvalidArgumentError(absl::StrCat(name, ": it is empty"));
    if (text[first] == '{') return ReadJson(name, text, out);
    std::vector<policy::Diagnostic> diagnostics;
    const std::vector<policy::YamlPtr> documents = policy::ReadYaml(name, text, diagnostics);
    // What was not read cannot be judged: half a file is none.
    if (!diagnostics.empty()) return absl::InvalidArgumentError(policy::ToString(diagnostics[0]));
    for (const policy::YamlPtr& document : documents) {
        if (document->kind == YamlNode::Kind::kNull) continue;
        Value value;
        SK_RETURN_IF_ERROR(FromYaml(name, *document, &value));
        AddAll(std::move(value), absl::StrCat(name, ":", document->line), out);
    }
    return absl::OkStatus();
}

}  // namespace stockade::k8s
