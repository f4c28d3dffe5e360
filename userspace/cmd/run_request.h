// The flags of `stockade run`, and the message that they become.
#pragma once

#include <string>
#include <vector>

#include "userspace/api/channel.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

struct RunFlags {
    std::string policy;
    std::string session;
    std::string tool;
    std::string trace;
    std::string cause;
    std::vector<std::string> labels;
    std::string in;
    std::string out;
    std::string out_size;
    std::vector<std::string> binds;
    std::string rootfs;
    std::string runtime = "native";
    std::string timeout;
    std::string events;
    std::string result;
    std::vector<std::string> env;
    std::string workdir = "/";
    std::string seccomp;
    std::string require;
    std::string contract;  // a file; what it says holds in place of the flags of the same meaning
    std::string approval;
    bool no_tty = false;
    bool quiet = false;
    std::vector<std::string> empty;  // flags that were given an empty value, as they are called
    std::vector<std::string> command;
};

// A Run with the directories that go with it.
struct RunRequest {
    api::Run run;
    std::vector<std::pair<api::FdRole, Fd>> fds;
};

// Has a / or ends in .yaml; else it is a name.
bool IsPolicyFile(const std::string& policy);

// What needs no look at the host: a variable of the caller's script that is empty must not turn
// into a flag that was not given.
Status CheckRunFlags(const RunFlags& flags);

// Reads files and opens directories as the caller. Errors name the flag.
StatusOr<RunRequest> MakeRunRequest(const RunFlags& flags);

}  // namespace stockade::cmd
