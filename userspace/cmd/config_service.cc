#include "userspace/cmd/config_service.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/cmd/config_yaml.h"
#include "userspace/metrics/listen_address.h"

namespace stockade::cmd {
namespace {

// A tool each; whoever needs more wants another selector, not another name.
constexpr size_t kMaxPolicies = 256;
// As useradd takes it, and policies are named no longer.
constexpr size_t kMaxNameBytes = 63;

bool IsName(absl::string_view name) {
    return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '-' &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
           });
}

}  // namespace

std::string ApiConfig::Text() const {
    return absl::StrCat(group, " ", absl::StrJoin(policies, ","), any_session ? " any session" : "");
}

Status ParseMetrics(const std::string& path, const YAML::Node& node, MetricsConfig* metrics) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "metrics", node, {"listen"}));
    const YAML::Node listen = node["listen"];
    if (!listen) return absl::OkStatus();
    if (!listen.IsScalar())
        return Wrong(At(path, listen), "metrics.listen takes an address with a port, or off");
    // YAML 1.1 readers take a bare `off` for false; here it is the word.
    metrics->listen = listen.Scalar();
    metrics->named = true;
    if (!metrics->on()) return absl::OkStatus();
    const Status status = metrics::ParseListenAddress(metrics->listen).status();
    return status.ok()
               ? status
               : Wrong(At(path, listen), absl::StrCat("metrics.listen: ", status.message(), ", nor off"));
}

Status ParseApi(const std::string& path, const YAML::Node& node, ApiConfig* api) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "api", node, {"group", "policies", "sessions"}));
    if (const YAML::Node group = node["group"]) {
        if (!group.IsScalar() || !IsName(group.Scalar()))
            return Wrong(At(path, group), "api.group takes the name of a group");
        api->group = group.Scalar();
    }
    if (const YAML::Node sessions = node["sessions"]) {
        if (!sessions.IsScalar() || (sessions.Scalar() != "own" && sessions.Scalar() != "any"))
            return Wrong(At(path, sessions), "api.sessions takes own or any");
        api->any_session = sessions.Scalar() == "any";
    }
    const YAML::Node policies = node["policies"];
    if (!policies) return absl::OkStatus();
    if (!policies.IsSequence() || policies.size() > kMaxPolicies) {
        return Wrong(At(path, policies),
                     absl::StrCat("api.policies takes a list of names, at most ", kMaxPolicies));
    }
    for (const YAML::Node& policy : policies) {
        if (!policy.IsScalar() || !IsName(policy.Scalar())) {
            return Wrong(At(path, policy), "api.policies takes names of policies, not files");
        }
        if (std::count(api->policies.begin(), api->policies.end(), policy.Scalar()) > 0) {
            return Wrong(At(path, policy),
                         absl::StrCat("api.policies: ", policy.Scalar(), " stands there twice"));
        }
        api->policies.push_back(policy.Scalar());
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
