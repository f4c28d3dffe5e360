#include "userspace/cmd/json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/model/text.h"

namespace stockade::cmd {

std::string JsonString(absl::string_view bytes) {
    std::string printable;
    (void)model::AppendEscaped(bytes, &printable);
    std::string out = "\"";
    for (const char c : printable) {
        if (c == '"' || c == '\\') out.push_back('\\');
        out.push_back(c);
    }
    out.push_back('"');
    return out;
}

JsonObject& JsonObject::AddRaw(absl::string_view key, absl::string_view json) {
    absl::StrAppend(&text_, text_.size() > 1 ? "," : "", JsonString(key), ":", json);
    return *this;
}

std::string JsonArray(const std::vector<std::string>& values) {
    return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

}  // namespace stockade::cmd
