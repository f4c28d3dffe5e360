// `stockade run` with an agent of the bench's own: its runtime directory, pins and cgroup are nobody else's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/bench.h"
#include "tests/bench/process.h"
#include "tests/bench/stage.h"

namespace stockade::bench {

class Session {
  public:
    // `evidence`: a folder is kept of each run.
    static StatusOr<std::unique_ptr<Session>> Open(const Settings& settings, bool evidence = false);
    // Ends the agent and removes what it left.
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    struct Sandboxed {
        Ran ran;
        std::map<std::string, uint64_t> times;  // steps of --result: "condemned" -> boot time
    };
    // The step program with these words, under a policy that allows it and nothing else. A client that failed (125) is an error.
    StatusOr<Sandboxed> Run(const std::vector<std::string>& words);
    // The next Run starts the agent. No error when there is none.
    Status StopAgent();

    const Stage& stage() const { return *stage_; }

  private:
    Session() = default;

    std::unique_ptr<Stage> stage_;
    std::string stockade_;
    std::string tag_;
};

}  // namespace stockade::bench
