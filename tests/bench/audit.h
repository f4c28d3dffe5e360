// The kernel's audit with auditd: what most Linux machines record opens with. The same workload, to a log file.
//
//   SK_ASSIGN_OR_RETURN(auto audit, Audit::Start(stage));   // before the workers: only those forked from now on are recorded
//   ... SK_ASSIGN_OR_RETURN(auto books, audit->Read(pids));
//
// Audit is the whole kernel's, and who has a record made of its calls is decided at its fork: a rule exempts all that this process
// does not fork. The kernel remembers until it boots that audit was on; so that this costs nobody anything, a rule that exempts
// every new task stays when this ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/stage.h"
#include "userspace/base/status.h"

namespace stockade::bench {

class Audit {
  public:
    struct Books {
        uint64_t events = 0;  // in the log
        uint64_t lost = 0;    // by the kernel's own count, in records
    };
    // kNotFound: auditd is not there. kFailedPrecondition: somebody uses audit.
    static StatusOr<std::unique_ptr<Audit>> Start(const Stage& stage);
    ~Audit();

    // Since the last call, of what is in the log by now; events of these processes.
    StatusOr<Books> Read(const std::set<pid_t>& of);
    pid_t daemon() const { return daemon_; }
    pid_t kernel_thread() const { return kernel_thread_; }  // 0 = not found

  private:
    Audit() = default;
    StatusOr<std::string> Control(const std::vector<std::string>& args) const;

    std::vector<std::string> prefix_;  // before each program: where its libraries are
    std::string folder_, log_;         // of the programs; what is written
    pid_t daemon_ = 0, kernel_thread_ = 0;
    bool ours_ = false;  // rules and the switch
    uint64_t read_ = 0;  // bytes of the log
    uint64_t lost_ = 0;
    std::string half_;  // the beginning of a line
};

}  // namespace stockade::bench
