// The words that events use for the numbers of the wire. Each table comes from the X-lists of
// bpf/wire; there is no other list of them.
#pragma once

#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace stockade::model {

struct Name {
    uint32_t number;
    absl::string_view text;
};

// Numbers ascending.
using Table = std::span<const Name>;

Table Verdicts();      // allow, observe, deny, kill-process, kill-sandbox
Table Outcomes();      // done, prevented, killed after effect, seen
Table Locks();         // none, bpf, landlock, ...
Table Codes();         // ok, exec.not_allowed, ...
Table Sections();      // exec, files, network, escape, dns, entered
Table Backends();      // signal, lsm, cgroup
Table ExecRoles();     // program, interpreter, mapped
Table FileOps();
Table NetOps();
Table DnsTiers();      // unranked, ranked, granted, ...
Table EscapeOps();
Table LifecycleOps();  // numbers below 100 come from the kernel, the rest from the agent
Table WireKinds();     // exec, exit, fork, file, net, ...
Table Severities();
Table Coverages();     // prevented, killed after effect, seen, unseen

// The table that a field option `values` speaks of; empty for an unknown name. "kind" is not
// here: its words are the names of the payloads in event.proto.
Table TableNamed(absl::string_view values);

// Empty when the table has no such number.
absl::string_view NameOf(Table table, uint32_t number);
// -1 when the table has no such word.
int64_t NumberOf(Table table, absl::string_view text);

}  // namespace stockade::model
