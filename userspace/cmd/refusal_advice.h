// What a sandbox's policy has to say about what was refused: the kernel's events name the object,
// user space knows the rules.
#pragma once

#include <string>

#include "userspace/model/event.pb.h"
#include "userspace/policy/document.h"

namespace stockade::cmd {

// Completes the refusals: for a denied object the rule that denies it; for one that another lock
// refused (Landlock, a mount, permissions) whether the policy allows it, and the line that would; no
// line where the section is absent, for that line would switch its enforcement on.
// `own_root`: the sandbox had a root of its own, so links of this host are not followed.
void AdviseRefusals(const policy::ResolvedPolicy& policy, bool own_root, v1::Summary* summary);

// "no exec section: ..." as `policy check` says it; empty when all three are there.
std::string AbsentSectionsNote(const policy::ResolvedPolicy& policy);

}  // namespace stockade::cmd
