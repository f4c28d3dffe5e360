#include "userspace/cmd/config_events.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/cmd/config_yaml.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {
namespace {

// Each keeps its own place in the spool, and has a thread: a handful is usual.
constexpr size_t kMaxExporters = 16;
constexpr size_t kMaxNameBytes = 64;
constexpr uint64_t kMinSpoolBytes = 16 << 20;  // some segments of each lane

StatusOr<std::string> AbsolutePath(const std::string& path, const char* key, const YAML::Node& node) {
    if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().front() != '/')
        return Wrong(At(path, node), absl::StrCat(key, " takes an absolute path"));
    return node.Scalar();
}

Status ParseSpool(const std::string& path, const YAML::Node& node, EventsConfig* events) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "events.spool", node, {"dir", "max_bytes"}));
    if (const YAML::Node dir = node["dir"]) {
        SK_ASSIGN_OR_RETURN(events->spool_dir, AbsolutePath(path, "dir", dir));
    }
    const YAML::Node max = node["max_bytes"];
    if (!max) return absl::OkStatus();
    if (!YAML::convert<uint64_t>::decode(max, events->spool_max_bytes) ||
        events->spool_max_bytes < kMinSpoolBytes)
        return Wrong(At(path, max), absl::StrCat("max_bytes takes a whole number from ", kMinSpoolBytes));
    return absl::OkStatus();
}

bool IsName(absl::string_view name) {
    return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    });
}

Status ParseExporter(const std::string& path, const YAML::Node& node, ExporterConfig* exporter) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "an exporter", node, {}));
    exporter->at = At(path, node);
    for (const auto& entry : node) {
        const std::string key = entry.first.as<std::string>();
        if (!entry.second.IsScalar())
            return Wrong(At(path, entry.second), absl::StrCat(key, " takes a single value"));
        if (key == "kind") {
            exporter->kind = entry.second.Scalar();
        } else if (key == "name") {
            exporter->name = entry.second.Scalar();
        } else {
            exporter->options[key] = entry.second.Scalar();
            exporter->option_at[key] = At(path, entry.first);
        }
    }
    if (exporter->kind.empty()) return Wrong(exporter->at, "an exporter needs a kind, such as jsonl");
    if (exporter->name.empty()) exporter->name = exporter->kind;
    if (!IsName(exporter->name))
        return Wrong(exporter->at,
                     absl::StrCat("name: letters, digits, - and _, at most ", kMaxNameBytes, " of them"));
    return absl::OkStatus();
}

// "<path>.<number>", which a jsonl exporter keeps its full files as.
bool IsRotated(absl::string_view name, absl::string_view path) {
    if (!absl::ConsumePrefix(&name, path) || !absl::ConsumePrefix(&name, ".")) return false;
    return !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// A file, and those that it is renamed to: two that write one of them cut each other's lines.
Status CheckPaths(const EventsConfig& events) {
    std::vector<std::pair<std::string, const ExporterConfig*>> before;
    for (const ExporterConfig& exporter : events.exporters) {
        const auto option = exporter.options.find("path");
        if (option == exporter.options.end()) continue;
        std::error_code error;
        // Links followed as far as there are any; what cannot be looked at now is compared as it is written.
        std::string path = option->second == "-" ? "-" : std::filesystem::weakly_canonical(option->second, error).string();
        if (error) path = std::filesystem::path(option->second).lexically_normal().string();
        for (const auto& [other, owner] : before) {
            if (path == other || IsRotated(path, other) || IsRotated(other, path))
                return Wrong(exporter.option_at.at("path"),
                             absl::StrCat("exporter ", owner->name, " (", owner->at, ") writes ", option->second,
                                          " already: each needs a path of its own"));
        }
        before.emplace_back(std::move(path), &exporter);
    }
    return absl::OkStatus();
}

}  // namespace

std::string EventsConfig::Text() const {
    std::string text = absl::StrCat(spool_dir, " ", spool_max_bytes, " ", node_key);
    for (const ExporterConfig& exporter : exporters) {
        std::map<std::string, std::string> shown = exporter.options;
        shown.erase("password");
        absl::StrAppend(&text, " [", exporter.kind, " ", exporter.name, " ",
                        absl::StrJoin(shown, " ", absl::PairFormatter("=")), "]");
    }
    return text;
}

Status ParseEvents(const std::string& path, const YAML::Node& node, EventsConfig* events) {
    SK_RETURN_IF_ERROR(CheckKeys(path, "events", node, {"exporters", "node_key", "spool"}));
    if (const YAML::Node spool = node["spool"]) SK_RETURN_IF_ERROR(ParseSpool(path, spool, events));
    if (const YAML::Node key = node["node_key"]) {
        SK_ASSIGN_OR_RETURN(events->node_key, AbsolutePath(path, "node_key", key));
    }
    const YAML::Node exporters = node["exporters"];
    if (!exporters || !exporters.IsSequence() || exporters.size() == 0)
        return Wrong(At(path, node),
                     "events needs exporters, a list: a spool that nobody reads would keep everything");
    if (exporters.size() > kMaxExporters)
        return Wrong(At(path, exporters), absl::StrCat("at most ", kMaxExporters, " exporters"));
    std::set<std::string> names;
    for (const YAML::Node& entry : exporters) {
        SK_RETURN_IF_ERROR(ParseExporter(path, entry, &events->exporters.emplace_back()));
        const ExporterConfig& added = events->exporters.back();
        if (!names.insert(added.name).second)
            return Wrong(added.at,
                         absl::StrCat("a second exporter named ", added.name, ": give it another name"));
    }
    return absl::OkStatus();
}

Status CheckExporters(const EventsConfig& events, const std::vector<ExporterKind>& kinds) {
    for (const ExporterConfig& exporter : events.exporters) {
        std::vector<std::string> names;
        const ExporterKind* kind = nullptr;
        for (const ExporterKind& candidate : kinds) {
            names.push_back(candidate.name);
            if (candidate.name == exporter.kind) kind = &candidate;
        }
        if (kind == nullptr)
            return Wrong(exporter.at, absl::StrCat("no exporter of kind ", exporter.kind,
                                                   policy::Suggest(exporter.kind, names), "; there are ",
                                                   absl::StrJoin(names, ", ")));
        for (const auto& [option, value] : exporter.options) {
            if (std::count(kind->options.begin(), kind->options.end(), option) > 0) continue;
            return Wrong(exporter.option_at.at(option),
                         absl::StrCat("unknown key ", option, " of a ", exporter.kind, " exporter",
                                      policy::Suggest(option, kind->options)));
        }
        if (const Status status = kind->check(exporter.options); !status.ok())
            return Wrong(exporter.at, status.message());
    }
    return CheckPaths(events);
}

std::vector<std::string> ExporterWarnings(const EventsConfig& events) {
    std::vector<std::string> warnings;
    for (const ExporterConfig& exporter : events.exporters) {
        const auto has = [&](const char* key) { return exporter.options.count(key) > 0; };
        if (has("password"))
            warnings.push_back(absl::StrCat(exporter.option_at.at("password"),
                                            ": a password in the configuration: passwordfile keeps it out"));
        if (has("sasl") && (!has("tls") || exporter.options.at("tls") != "true"))
            warnings.push_back(absl::StrCat(exporter.option_at.at("sasl"),
                                            ": without tls: true the login and all events go in the clear"));
        if (has("headersfile") && exporter.options.count("endpoint") > 0 &&
            absl::StartsWith(exporter.options.at("endpoint"), "http://"))
            warnings.push_back(absl::StrCat(exporter.option_at.at("headersfile"),
                                            ": to an endpoint of http:// the headers and all events go in the clear"));
    }
    return warnings;
}

}  // namespace stockade::cmd
