// The section `events` of the configuration: where events are spooled, and who gets them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace YAML {
class Node;
}

namespace stockade::cmd {

struct ExporterConfig {
    std::string kind;                            // jsonl, kafka, otlp
    std::string name;                            // of its place in the spool; the kind, where none is given
    std::map<std::string, std::string> options;  // all other keys; what they mean the exporter knows
    std::string at;                              // file:line:column of the entry
    std::map<std::string, std::string> option_at;
};

struct EventsConfig {
    std::string spool_dir;                         // empty = state_dir/spool
    uint64_t spool_max_bytes = uint64_t{4} << 30;  // ten minutes of 5,000 events per second, twice over
    std::string node_key;                          // empty = state_dir/node.key
    std::vector<ExporterConfig> exporters;         // none = nothing is spooled

    bool operator==(const EventsConfig& other) const { return Text() == other.Text(); }
    // All of it on one line, without passwords.
    std::string Text() const;
};

// Errors name file, line and the nearest key. Throws what yaml-cpp throws.
Status ParseEvents(const std::string& path, const YAML::Node& node, EventsConfig* events);

// What is known of a kind of exporter without making one. stockaded_main.cc has the list: only the agent links them.
struct ExporterKind {
    std::string name;
    std::vector<std::string> options;
    Status (*check)(const std::map<std::string, std::string>& options);
};
// Of options that the kind does not have, lack, or take otherwise. Errors name file, line and the nearest key.
Status CheckExporters(const EventsConfig& events, const std::vector<ExporterKind>& kinds);
// What is allowed and not wise, each with its place.
std::vector<std::string> ExporterWarnings(const EventsConfig& events);

}  // namespace stockade::cmd
