// Counters of the agent's parts as families of metrics. Names, help and units are here and nowhere else; docs/operations.md tells of them.
#pragma once

#include "userspace/cmd/agent_counts.h"
#include "userspace/cmd/rule_engine.h"
#include "userspace/cmd/pods.h"
#include "userspace/dns/stub_counters.h"
#include "userspace/metrics/families.h"
#include "userspace/nri/link.h"
#include "userspace/pipeline/event_path.h"
#include "userspace/pipeline/event_store.h"

namespace stockade::cmd {

void CountPath(const pipeline::PathCounters& counters, metrics::Families* out);
// The rules, and what was done for them and by hand.
void CountDetect(const RuleCounters& counters, const AgentCounts& agent, bool broken, metrics::Families* out);
void CountDns(const dns::StubCounters& counters, metrics::Families* out);
void CountStore(const pipeline::StoreCounters& counters, bool healthy, uint64_t max_bytes,
                metrics::Families* out);
// Of this process, under the names that all exporters use.
void CountProcess(metrics::Families* out);
void CountPods(const PodCounts& pods, bool up, const nri::Link::Counters& link, metrics::Families* out);

}  // namespace stockade::cmd
