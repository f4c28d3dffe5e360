// /etc/stockade/config.yaml: what an administrator may change of the agent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/cmd/config_events.h"
#include "userspace/cmd/config_evidence.h"
#include "userspace/cmd/config_kubernetes.h"
#include "userspace/cmd/config_rules.h"
#include "userspace/cmd/config_service.h"

namespace stockade::cmd {

struct Config {
    std::string runtime_dir = "/run/stockade";
    std::string state_dir = "/var/lib/stockade";  // what outlives a reboot
    std::string pin_dir = "/sys/fs/bpf/stockade";
    std::string cgroup_name = "stockade";
    // Later directories do not override earlier ones: a name may be given once.
    std::vector<std::string> policy_dirs = {"/etc/stockade/policies.d", "/usr/share/stockade/policies"};
    std::string default_policy = "networkless";
    std::string backend = "auto";  // auto | signal | lsm
    uint32_t uid_first = 1'900'000'000;
    uint32_t uid_count = 65536;
    uint32_t kills_per_minute = 60;    // automatic ones, per policy and per rule; 0 = no limit
    bool made_ahead = true;            // one sandbox stands for the next run (ADR 9)
    uint32_t agent_wait_seconds = 10;  // how long a sandbox outlives its agent
    // Of each sandbox, where the host's cgroup v2 has the controllers; 0 = no limit (of swap: none).
    // A compiler or a browser fits; 2 GiB of one runaway tool do not end a small host.
    uint64_t memory_max_mib = 2048;
    uint64_t swap_max_mib = 0;
    uint64_t pids_max = 1024;
    uint32_t cpu_max_percent = 0;  // of one CPU
    MetricsConfig metrics;
    ApiConfig api;
    EventsConfig events;  // off: a single developer has no use for a spool
    EvidenceConfig evidence;  // off
    RulesConfig rules;    // on: where no directory has any it costs nothing
    KubernetesConfig kubernetes;  // off: most hosts are no nodes

    std::string socket_path() const { return runtime_dir + "/agent.sock"; }
    std::string spool_dir() const {
        return events.spool_dir.empty() ? state_dir + "/spool" : events.spool_dir;
    }
    std::string node_key_path() const {
        return events.node_key.empty() ? state_dir + "/node.key" : events.node_key;
    }
};

inline constexpr char kDefaultConfigPath[] = "/etc/stockade/config.yaml";

// Defaults where the file does not exist and `must_exist` is false. Errors name file, line and
// the nearest key.
StatusOr<Config> LoadConfig(const std::string& path, bool must_exist);

}  // namespace stockade::cmd
