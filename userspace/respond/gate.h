// Whether a rule's response is due: `once_per`, `throttle`, and the breaker that keeps a wrong rule from ending everything.
//
//   Gate gate({});
//   if (gate.Ask({.rule = id, .sandbox = sbx, .kills = true}, BootNow()) == Gate::Answer::kGo) ...
//
// One thread at a time. It acts on nothing.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "userspace/respond/breaker.h"

namespace stockade::respond {

class Gate {
  public:
    struct Options {
        uint32_t kills = 60;  // automatic ones of one rule in a minute, as of policies; 0 = no limit
        size_t max_remembered =
            65536;  // (rule, whom) that have answered; about 200 bytes each: 13 MB at the worst
    };
    struct Question {
        std::string rule;
        std::string sandbox;
        std::string session;
        std::string once_per;      // "", sandbox, session
        uint64_t throttle_ns = 0;  // for each sandbox; 0 = each time
        bool kills = false;        // it ends or stops something: the breaker counts it
    };
    enum class Answer {
        kGo,
        kNotDue,    // done already, by once_per or throttle
        kHeldBack,  // the breaker of the rule is open
    };
    explicit Gate(const Options& options) : options_(options), breaker_({.kills = options.kills}) {}

    // kGo counts as done.
    Answer Ask(const Question& question, uint64_t now_ns);
    // Those that were forgotten, the longest untouched first, for there were too many: they may act once more.
    uint64_t forgotten() const { return forgotten_; }

  private:
    struct Done {
        uint64_t last_ns;
        std::list<std::string>::iterator age;
    };
    const Options options_;
    Breaker breaker_;
    std::map<std::string, Done> done_;
    std::list<std::string> ages_;
    uint64_t forgotten_ = 0;
};

}  // namespace stockade::respond
