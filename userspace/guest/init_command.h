// The command in the guest: started without rights, waited for, and everything that it left ended.
#pragma once

#include <sys/types.h>

#include "userspace/base/fd.h"
#include "userspace/guest/frame.h"

namespace stockade::guest {

struct Command {
    pid_t pid = -1;
    Fd in;   // write end, does not block
    Fd out;  // read ends
    Fd err;
};

// `error` of execve(2) and its like is told beside the words, so that the host can tell 126 and 127 apart.
struct StartFailure {
    Status status;
    int error = 0;
};
// True when it runs: past its execve.
bool StartCommand(const RunOrder& run, Command* command, StartFailure* failure);

// Takes the status of every child that has ended. True once `pid` is among them: then `exited` has its own.
bool ReapChildren(pid_t pid, Exited* exited);
// Kills all but init itself and waits until nothing is left.
void EndEverything();

}  // namespace stockade::guest
