// Advice on refused connections and names that takes more than the one refusal to give.
#pragma once

#include "userspace/model/event.pb.h"
#include "userspace/policy/document.h"

namespace stockade::cmd {

// A connection to port 53 of the loopback is libc looking for a resolver that is not there: advised is what makes names
// resolve. A port that the kernel chose is another one the next time: `[any]`. Three names of a zone, or more, get one
// line for the zone, with the first of them.
void AdviseNetwork(const policy::ResolvedPolicy& policy, v1::Summary* summary);

}  // namespace stockade::cmd
