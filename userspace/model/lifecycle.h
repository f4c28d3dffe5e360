// Steps in the life of a sandbox. Those below 100 are records of the kernel
// (bpf/wire/lifecycle.h), the rest are said by the agent.
#pragma once

#define SK_LIFECYCLE_STEPS(X)                                                      \
    X(1, CONDEMNED, "condemned")     /* a violation with kill-sandbox */            \
    X(2, ENTERED, "entered")         /* a task came in from outside */              \
    X(3, EMPTY, "empty")             /* the last labelled task has gone */          \
    X(100, REGISTERED, "registered") /* id, labels and cgroup exist */              \
    X(101, BOUND, "policy-bound")                                                   \
    X(102, ATTESTED, "attested")     /* carries the coverage */                     \
    X(103, STARTED, "started")       /* the first instruction may run */            \
    X(104, POLICY_SWAPPED, "policy-swapped")                                        \
    X(105, DEGRADED, "degraded")     /* detail names the condition */               \
    X(106, ADOPTED, "adopted")       /* an agent took it over from the pins */      \
    X(107, KILL_PENDING, "kill-pending") /* tasks in D state are left */            \
    X(108, KILLED, "killed")         /* carries the steps with their times */       \
    X(109, EXITED, "exited")         /* the command has ended; carries the status */ \
    X(110, DESTROYED, "destroyed")   /* nothing of it is left */                     \
    X(111, EVIDENCE, "evidence")     /* its folder is closed; detail is where */     \
    X(112, VERIFIED, "verified")     /* removed and kept; detail is the manifest's SHA-256 */ \
    X(113, OVERRUN, "overrun")       /* that took longer than it may */

namespace stockade::model {

enum LifecycleStep {
#define X(number, NAME, text) LIFECYCLE_##NAME = number,
    SK_LIFECYCLE_STEPS(X)
#undef X
};

}  // namespace stockade::model
