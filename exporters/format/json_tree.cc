#include "exporters/format/json_tree.h"

#include "absl/strings/str_cat.h"
#include "userspace/model/json.h"

namespace stockade::exporters {

void JsonTree::Set(absl::string_view path, std::string json) {
    JsonTree* node = this;
    while (!path.empty()) {
        const size_t dot = path.find('.');
        const absl::string_view name = path.substr(0, dot);
        path = dot == path.npos ? absl::string_view() : path.substr(dot + 1);
        JsonTree* next = nullptr;
        for (auto& [other, child] : node->members_) {
            if (other == name) next = child.get();
        }
        if (!next) {
            next = node->members_.emplace_back(std::string(name), std::make_unique<JsonTree>()).second.get();
        }
        node = next;
    }
    node->members_.clear();
    node->value_ = std::move(json);
}

void JsonTree::SetString(absl::string_view path, absl::string_view text) {
    std::string json;
    model::AppendJsonString(text, &json);
    Set(path, std::move(json));
}

void JsonTree::SetNumber(absl::string_view path, int64_t number) { Set(path, absl::StrCat(number)); }

const JsonTree* JsonTree::Find(absl::string_view path) const {
    const JsonTree* node = this;
    while (node && !path.empty()) {
        const size_t dot = path.find('.');
        const absl::string_view name = path.substr(0, dot);
        path = dot == path.npos ? absl::string_view() : path.substr(dot + 1);
        const JsonTree* next = nullptr;
        for (const auto& [other, child] : node->members_) {
            if (other == name) next = child.get();
        }
        node = next;
    }
    return node;
}

std::string JsonTree::Get(absl::string_view path) const {
    std::string out;
    if (const JsonTree* node = Find(path)) node->Append(&out);
    return out;
}

void JsonTree::Append(std::string* out) const {
    if (!value_.empty()) {
        out->append(value_);
        return;
    }
    out->push_back('{');
    for (size_t i = 0; i < members_.size(); ++i) {
        if (i > 0) out->push_back(',');
        model::AppendJsonString(members_[i].first, out);
        out->push_back(':');
        members_[i].second->Append(out);
    }
    out->push_back('}');
}

}  // namespace stockade::exporters
