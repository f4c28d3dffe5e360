#include "userspace/respond/gate.h"

#include "absl/strings/str_cat.h"

namespace stockade::respond {

Gate::Answer Gate::Ask(const Question& question, uint64_t now_ns) {
    const bool limited = !question.once_per.empty() || question.throttle_ns != 0;
    // A sandbox without a session is one of its own.
    const bool by_session = question.once_per == "session" && !question.session.empty();
    const std::string key = absl::StrCat(question.rule, "\n", by_session ? "session " : "sandbox ",
                                         by_session ? question.session : question.sandbox);
    auto it = limited ? done_.find(key) : done_.end();
    if (it != done_.end()) {
        ages_.splice(ages_.end(), ages_, it->second.age);
        if (!question.once_per.empty() || now_ns - it->second.last_ns < question.throttle_ns)
            return Answer::kNotDue;
    }
    if (question.kills && !breaker_.Allow("rule " + question.rule, now_ns)) return Answer::kHeldBack;
    if (!limited) return Answer::kGo;
    if (it != done_.end()) {
        it->second.last_ns = now_ns;
        return Answer::kGo;
    }
    if (done_.size() >= options_.max_remembered && !ages_.empty()) {
        done_.erase(ages_.front());
        ages_.pop_front();
        ++forgotten_;
    }
    done_[key] = {now_ns, ages_.insert(ages_.end(), key)};
    return Answer::kGo;
}

}  // namespace stockade::respond
