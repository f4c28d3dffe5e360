// The plugin's connection, kept by a thread of its own: connects, registers, answers in time whatever the rest of the agent does, and
// connects again when the runtime is gone.
//
//   SK_ASSIGN_OR_RETURN(auto link, Link::Start({.socket = "/var/run/nri/nri.sock"}));
//   // event_fd() readable:
//   for (Call& call : link->TakeCalls()) link->Answer(call.id, Judge(call));
//
// A plugin that is late is dropped by the runtime, and its container starts unguarded. So a call that has no answer `answer_ns` after it
// came is refused here, and what the agent answers later changes nothing: Answer says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/nri/session.h"

namespace stockade::nri {

class Link {
  public:
    struct Options {
        std::string socket = "/var/run/nri/nri.sock";
        Session::Options session{};
        // The runtime's own patience is 2 s, unless it says otherwise: then it is three quarters of that, if that is less.
        uint64_t answer_ns = 1'500'000'000;
        // Between two tries. The socket is looked for again and again, as the runtime may start after us.
        uint64_t retry_ns = 100'000'000;
        uint64_t refused_retry_ns = 2'000'000'000;  // after a connection that came to nothing
        // From connect until everything that runs was handed on. The runtime gives us 5 s to register.
        uint64_t handshake_ns = 10'000'000'000;
    };
    struct State {
        bool up = false;           // registered, and what runs was handed on
        std::string runtime{};     // "containerd 2.4.2, NRI 0.12"
        std::string trouble{};     // why it is not up
        uint64_t since_ns = 0;     // boot time of the last change of `up`
    };
    struct Counters {
        SessionCounters session{};
        uint64_t connections = 0;       // that came to be up
        uint64_t failed_handshakes = 0; // that did not
        uint64_t lost_connections = 0;  // that were up
        uint64_t overdue_calls = 0;     // refused for having no answer in time
        uint64_t dropped_calls = 0;     // for the bound, as the agent takes none
    };

    static StatusOr<std::unique_ptr<Link>> Start(Options options);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    int event_fd() const { return told_.get(); }
    // Makes event_fd() readable: whoever has work left comes back to it after what else is there.
    void Wake();
    // Also resets event_fd().
    std::vector<Call> TakeCalls();
    enum class Told {
        kYes,      // it is on its way; should it not arrive, kUnheard tells
        kRefused,  // it was refused already, for being overdue
        kGone,     // with its connection: the runtime goes on without us
    };
    Told Answer(uint64_t id, const Status& status);
    State state() const;
    Counters counters() const;

  private:
    struct Due {
        uint64_t session_id = 0;
        uint64_t deadline_ns = 0;
        std::string container_id{};
        bool refused = false;
    };
    explicit Link(Options options) : options_(std::move(options)) {}
    void Work();
    // One connection from its beginning to its end. The status says why it ended.
    Status Serve();
    static Status ReadSome(int fd, Session& session);
    static Status WriteSome(int fd, std::string* output);
    void HandOn(Session& session);
    void TakeAnswers(Session& session);
    void RefuseOverdue(Session& session);
    void End(Session& session, int fd, const Status& why, std::string* output);
    int WaitMs(uint64_t handshake_deadline_ns) const;
    void SetTrouble(const Status& status);

    const Options options_;
    Fd told_;   // to the agent
    Fd woken_;  // to the thread
    std::atomic<bool> stop_{false};
    std::thread thread_;

    mutable std::mutex mutex_;  // of what follows
    std::deque<Call> calls_;
    std::map<uint64_t, Due> due_;  // by the id that the agent knows
    std::vector<std::pair<Due, Status>> answers_;
    std::vector<std::string> unwritten_;  // containers that were let go, in answers that are not written yet; of the thread
    uint64_t next_id_ = 1;
    State state_;
    Counters counters_;  // without the session that stands
    SessionCounters current_;
};

}  // namespace stockade::nri
