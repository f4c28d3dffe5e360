#include "userspace/cmd/config_kubernetes.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/cmd/config_yaml.h"
#include "userspace/dns/stub_types.h"
#include "userspace/model/sandbox.h"

namespace stockade::cmd {
namespace {

// A node sees the namespaces of its tenants; a list that is longer than this is a program's.
constexpr size_t kMaxNamespaces = 1024;
constexpr size_t kMaxPolicies = 256;
// As many as the kernel pins for a sandbox (SK_DNS_RESOLVERS of bpf/wire/dns_zone.h).
constexpr size_t kMaxResolvers = 4;
constexpr size_t kMaxNameBytes = 63;  // of a namespace, and of a policy

bool IsName(absl::string_view name) {
    return !name.empty() && name.size() <= kMaxNameBytes && absl::ascii_isalnum(static_cast<unsigned char>(name.front())) &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
           });
}

Status ParsePolicies(const std::string& path, absl::string_view key, const YAML::Node& node, std::vector<std::string>* out) {
    if (!node) return absl::OkStatus();
    if (!node.IsSequence() || node.size() > kMaxPolicies)
        return Wrong(At(path, node), absl::StrCat(key, " takes a list of names, at most ", kMaxPolicies));
    for (const YAML::Node& policy : node) {
        if (!policy.IsScalar() || (policy.Scalar() != "*" && !IsName(policy.Scalar())))
            return Wrong(At(path, policy), absl::StrCat(key, " takes names of policies, or \"*\" for any"));
        out->push_back(policy.Scalar());
    }
    return absl::OkStatus();
}

Status ParseLabelKeys(const std::string& path, const YAML::Node& node, PodLabelKeys* keys) {
    if (!node) return absl::OkStatus();
    // Of clawql: its own prefix, the same words.
    if (node.IsScalar() && node.Scalar() == "clawql") {
        *keys = {"clawql.io/session", "clawql.io/tool", "clawql.io/trace", "clawql.io/tool-class"};
        return absl::OkStatus();
    }
    if (node.IsScalar()) return Wrong(At(path, node), "kubernetes.labels takes the preset clawql, or keys");
    SK_RETURN_IF_ERROR(CheckKeys(path, "kubernetes.labels", node, {"session", "tool", "trace", "class"}));
    const std::pair<const char*, std::string*> all[] = {
        {"session", &keys->session}, {"tool", &keys->tool}, {"trace", &keys->trace}, {"class", &keys->tool_class}};
    for (const auto& [name, key] : all) {
        const YAML::Node value = node[name];
        if (!value) continue;
        if (!value.IsScalar() || value.Scalar().empty() || value.Scalar().size() > model::kMaxLabelKeyBytes)
            return Wrong(At(path, value), absl::StrCat("kubernetes.labels.", name, " takes the key of a label"));
        *key = value.Scalar();
    }
    return absl::OkStatus();
}

Status ParseNamespaces(const std::string& path, const YAML::Node& node, std::map<std::string, NamespaceConfig>* out) {
    if (!node) return absl::OkStatus();
    SK_RETURN_IF_ERROR(CheckKeys(path, "kubernetes.namespaces", node, {}));
    if (node.size() > kMaxNamespaces)
        return Wrong(At(path, node), absl::StrCat("kubernetes.namespaces: more than ", kMaxNamespaces));
    for (const auto& entry : node) {
        const std::string name = entry.first.as<std::string>();
        const std::string what = absl::StrCat("kubernetes.namespaces.", name);
        if (!IsName(name)) return Wrong(At(path, entry.first), absl::StrCat("'", name, "' is no name of a namespace"));
        NamespaceConfig& config = (*out)[name];
        if (entry.second.IsNull()) continue;  // "tools:" alone: its pods are sandboxes, and each names its policy
        SK_RETURN_IF_ERROR(CheckKeys(path, what, entry.second, {"policy", "policies"}));
        if (const YAML::Node policy = entry.second["policy"]) {
            if (!policy.IsScalar() || !IsName(policy.Scalar()))
                return Wrong(At(path, policy), absl::StrCat(what, ".policy takes the name of a policy"));
            config.policy = policy.Scalar();
        }
        SK_RETURN_IF_ERROR(ParsePolicies(path, absl::StrCat(what, ".policies"), entry.second["policies"], &config.policies));
    }
    return absl::OkStatus();
}

Status ParseResolvers(const std::string& path, const YAML::Node& node, std::vector<std::string>* out) {
    if (!node) return absl::OkStatus();
    if (!node.IsSequence() || node.size() > kMaxResolvers)
        return Wrong(At(path, node), absl::StrCat("kubernetes.resolvers takes a list of IP addresses, at most ", kMaxResolvers));
    for (const YAML::Node& resolver : node) {
        if (!resolver.IsScalar() || !dns::UpstreamAddress::Parse(resolver.Scalar()).ok())
            return Wrong(At(path, resolver), "kubernetes.resolvers takes IP addresses");
        out->push_back(resolver.Scalar());
    }
    return absl::OkStatus();
}

}  // namespace

std::string KubernetesConfig::Text() const {
    std::string out = absl::StrCat(nri, " ", index, " ", labels.session, " ", labels.tool, " ", labels.trace, " ", labels.tool_class,
                                   " ", absl::StrJoin(policies, ","), " ", absl::StrJoin(resolvers, ","), " ",
                                   kill_unprotected ? "kill" : "report");
    for (const auto& [name, config] : namespaces)
        absl::StrAppend(&out, " ", name, "=", config.policy, ":", absl::StrJoin(config.policies, ","));
    return out;
}

Status ParseKubernetes(const std::string& path, const YAML::Node& node, KubernetesConfig* kubernetes) {
    SK_RETURN_IF_ERROR(
        CheckKeys(path, "kubernetes", node, {"nri", "index", "labels", "policies", "namespaces", "resolvers", "unprotected"}));
    if (const YAML::Node nri = node["nri"]) {
        if (!nri.IsScalar() || nri.Scalar().empty() || nri.Scalar().front() != '/')
            return Wrong(At(path, nri), "kubernetes.nri takes the absolute path of the runtime's NRI socket");
        kubernetes->nri = nri.Scalar();
    }
    if (const YAML::Node index = node["index"]) {
        const std::string text = index.IsScalar() ? index.Scalar() : "";
        if (text.size() != 2 || !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) ||
            !absl::ascii_isdigit(static_cast<unsigned char>(text[1])))
            return Wrong(At(path, index), "kubernetes.index takes two digits in quotes: \"10\"");
        kubernetes->index = text;
    }
    SK_RETURN_IF_ERROR(ParseLabelKeys(path, node["labels"], &kubernetes->labels));
    SK_RETURN_IF_ERROR(ParsePolicies(path, "kubernetes.policies", node["policies"], &kubernetes->policies));
    SK_RETURN_IF_ERROR(ParseNamespaces(path, node["namespaces"], &kubernetes->namespaces));
    SK_RETURN_IF_ERROR(ParseResolvers(path, node["resolvers"], &kubernetes->resolvers));
    if (const YAML::Node unprotected = node["unprotected"]) {
        const std::string text = unprotected.IsScalar() ? unprotected.Scalar() : "";
        if (text != "report" && text != "kill") return Wrong(At(path, unprotected), "kubernetes.unprotected takes report or kill");
        kubernetes->kill_unprotected = text == "kill";
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
