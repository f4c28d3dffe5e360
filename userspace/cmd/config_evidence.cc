#include "userspace/cmd/config_evidence.h"

#include "absl/strings/str_cat.h"
#include "userspace/cmd/config_yaml.h"

namespace stockade::cmd {
namespace {

Status ReadPath(const std::string& path, const char* key, const YAML::Node& node, std::string* out) {
    const YAML::Node value = node[key];
    if (!value) return absl::OkStatus();
    if (!value.IsScalar() || value.Scalar().empty() || value.Scalar().front() != '/')
        return Wrong(At(path, value), absl::StrCat("evidence.", key, " takes an absolute path"));
    *out = value.Scalar();
    return absl::OkStatus();
}

Status ReadNumber(const std::string& path, const char* key, const YAML::Node& node, uint64_t most, uint64_t* out) {
    const YAML::Node value = node[key];
    if (!value) return absl::OkStatus();
    if (value.IsScalar() && YAML::convert<uint64_t>::decode(value, *out) && *out <= most) return absl::OkStatus();
    return Wrong(At(path, value), absl::StrCat("evidence.", key, " takes a whole number up to ", most, "; 0 = no bound"));
}

}  // namespace

std::string EvidenceConfig::Text() const { return absl::StrCat(dir, " ", max_bytes, " ", max_age_hours, " ", hook); }

Status ParseEvidence(const std::string& path, const YAML::Node& node, EvidenceConfig* evidence) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "evidence", node, {"dir", "hook", "max_age_hours", "max_bytes"}));
    SK_RETURN_IF_ERROR(ReadPath(path, "dir", node, &evidence->dir));
    SK_RETURN_IF_ERROR(ReadPath(path, "hook", node, &evidence->hook));
    SK_RETURN_IF_ERROR(ReadNumber(path, "max_bytes", node, uint64_t{1} << 50, &evidence->max_bytes));
    SK_RETURN_IF_ERROR(ReadNumber(path, "max_age_hours", node, 24 * 366 * 100, &evidence->max_age_hours));
    if (!evidence->on()) return Wrong(At(path, node), "evidence lacks dir: where it is kept");
    return absl::OkStatus();
}

}  // namespace stockade::cmd
