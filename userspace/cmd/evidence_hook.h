// The command that is told of each closed folder: it may upload it, move it away, or look at it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace stockade::cmd {

class EvidenceHook {
  public:
    explicit EvidenceHook(std::string program) : program_(std::move(program)) {}
    ~EvidenceHook();
    bool on() const { return !program_.empty(); }
    void Tell(const std::string& folder);
    // Collects those that have ended, ends those that hang, starts those that wait. Returns how many failed.
    uint64_t Turn();
    bool idle() const { return running_.empty() && waiting_.empty(); }

  private:
    struct Running {
        pid_t pid;
        uint64_t deadline_ns;  // boot time
        bool killed = false;
    };
    std::string program_;
    std::deque<std::string> waiting_;
    std::vector<Running> running_;
    uint64_t failed_ = 0;
};

}  // namespace stockade::cmd
