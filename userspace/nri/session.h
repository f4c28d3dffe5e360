// One connection to the runtime as a plugin of it: registers, is configured, takes in what runs already, and hands on what is asked.
//
//   Session session({.name = "stockade", .index = "10"});
//   Send(session.TakeOutput());                       // the registration
//   SK_RETURN_IF_ERROR(session.Feed(bytes));          // an error ends the connection: start anew
//   for (Call& call : session.TakeCalls()) ...        // later: session.Answer(call.id, absl::OkStatus());
//
// Pure: no socket, no clock. Not thread-safe. It does not decide anything about containers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/nri/framing.h"
#include "userspace/nri/nri.pb.h"

namespace stockade::nri {

// Requests that wait for an answer. The runtime asks one after the other; what is beyond this is refused, not queued.
inline constexpr size_t kMaxWaiting = 256;
// What the runtime says is there when we come: a node has a few hundred containers, the kubelet's own limit is 110 pods.
inline constexpr size_t kMaxSynchronized = 8192;
// Of the answers that were not taken by the runtime yet: it asks with a bounded number of requests, so this is far beyond them.
inline constexpr size_t kMaxOutputBytes = 1 << 20;
// Text of an error, which ends up in the message of the container's failure.
inline constexpr size_t kMaxErrorBytes = 512;

enum class CallKind : uint8_t {
    kSynchronized,  // everything that the runtime runs already; wants no answer
    kCreate,
    kStart,
    kStop,    // it has ended, or will; an error changes nothing
    kRemove,  // likewise
    kUnheard,  // of Link: what was answered for this container did not reach the runtime, which went on without us; wants no answer
};
struct Call {
    CallKind kind = CallKind::kStop;
    uint64_t id = 0;  // for Answer; 0 = wants none
    PodSandbox pod{};
    Container container{};
    std::vector<PodSandbox> pods{};            // kSynchronized
    std::vector<Container> containers{};       // kSynchronized
};

// What came in that should not have, and what was refused for our own bounds.
struct SessionCounters {
    uint64_t calls = 0;
    uint64_t refused_calls = 0;      // answered with an error by the session itself: a bound, an order that NRI does not have
    uint64_t unknown_methods = 0;    // of a newer runtime; answered with "unimplemented"
    uint64_t malformed_messages = 0; // no protobuf of the method; answered with an error
    uint64_t stray_frames = 0;       // a response that nobody waits for, data of a stream
    uint64_t broken_streams = 0;     // what ended the connection: lengths, types, connections that there are not
    uint64_t late_answers = 0;       // ours, to what had been answered (by the deadline)

    void Add(const SessionCounters& other);
};

class Session {
  public:
    struct Options {
        std::string name = "stockade";
        std::string index = "10";  // two digits
    };
    explicit Session(Options options);

    Status Feed(absl::string_view bytes);
    std::string TakeOutput() { return std::exchange(output_, {}); }
    std::vector<Call> TakeCalls() { return std::exchange(calls_, {}); }
    // An error refuses: the runtime then does not create or start the container. Of an id that was answered: counted, nothing else.
    void Answer(uint64_t id, const Status& status);
    // For the end of a connection: a container whose request has no answer goes on without us.
    void RefuseWaiting(const Status& status);

    // It was registered and configured, and everything that ran then has been handed on.
    bool synchronized() const { return synchronized_; }
    // What the runtime says of itself, "containerd 2.4.2, NRI 0.12"; empty before Configure.
    const std::string& runtime() const { return runtime_; }
    // How long the runtime waits for an answer, in ms; 0 = it did not say.
    int64_t request_timeout_ms() const { return request_timeout_ms_; }
    const SessionCounters& counters() const { return counters_; }

  private:
    struct Waiting {
        uint32_t stream = 0;
    };
    Status OnFrame(uint32_t connection, RpcFrame frame);
    Status OnRequest(const RpcFrame& frame);
    Status OnResponse(const RpcFrame& frame);
    Status Dispatch(uint32_t stream, const RpcRequest& request);
    Status Configure(uint32_t stream, const std::string& payload);
    Status Synchronize(uint32_t stream, const std::string& payload);
    Status OnContainer(uint32_t stream, CallKind kind, PodSandbox pod, Container container);
    Status Malformed(uint32_t stream, absl::string_view what);
    Status Refuse(uint32_t stream, int code, absl::string_view text);
    Status Reply(uint32_t stream, const RpcResponse& response);
    Status ReplyMessage(uint32_t stream, const google::protobuf::MessageLite& message);

    const Options options_;
    TrunkParser trunk_;
    RpcParser plugin_;   // what the runtime asks
    RpcParser runtime_answers_;
    std::string output_;
    std::vector<Call> calls_;
    std::map<uint64_t, Waiting> waiting_;
    uint64_t next_id_ = 1;
    bool registered_ = false;
    bool configured_ = false;
    bool synchronized_ = false;
    Call pending_;  // kSynchronized, in parts
    std::string runtime_;
    int64_t request_timeout_ms_ = 0;
    SessionCounters counters_;
};

}  // namespace stockade::nri
