// The host's half of what is said between host and guest: which frame may come on which port, when, and whether the
// counts at the end are true. Pure; whatever the guest says, the answer is a step forward or one error.
//
//   Conversation talk(sink);
//   SK_RETURN_IF_ERROR(talk.Take(Port::kControl, bytes));   // as they come, in any cut
//   if (talk.stage() == Stage::kReady) { send Run; talk.RunSent(); }
//   if (talk.stage() == Stage::kComplete) send Ack;
//
// The ports are streams of their own: nothing is assumed of the order between two of them.
#pragma once

#include <array>
#include <string>

#include "userspace/guest/frame.h"

namespace stockade::guest {

enum class Stage {
    kBooting,   // until all ports have said Hello
    kReady,     // waits for RunSent()
    kStarting,  // until Started or Failed
    kRunning,   // until Exited
    kEnding,    // until all ports have said End
    kComplete,
};
const char* StageName(Stage stage);

// Where the guest's bytes go. An error ends the conversation.
class GuestSink {
  public:
    virtual ~GuestSink() = default;
    virtual Status Stdout(absl::string_view bytes) = 0;
    virtual Status Stderr(absl::string_view bytes) = 0;
    virtual Status Records(absl::string_view bytes) = 0;
    // A file's bytes follow by OutBytes, exactly as many as it has; OutDone after the last, at once for an empty one.
    virtual Status OutEntry(const Entry& entry) = 0;
    virtual Status OutBytes(absl::string_view bytes) = 0;
    virtual Status OutDone() = 0;
    virtual Status OutSkipped(const Skipped& skipped) = 0;
};

// Threads: one.
class Conversation {
  public:
    explicit Conversation(GuestSink& sink) : sink_(sink) {}

    // kInvalidArgument and kResourceExhausted: the guest lies or babbles; nothing more is taken from it.
    Status Take(Port port, absl::string_view bytes);
    // The host has sent Run: call in kReady.
    void RunSent() { run_sent_ = true; }

    Stage stage() const;
    bool started() const { return started_; }
    bool has_exited() const { return exited_.has_value(); }
    // Guest-reported, all of them.
    const std::optional<Exited>& exited() const { return exited_; }
    const std::optional<Failed>& failed() const { return command_failed_; }
    const std::string& kernel() const { return kernel_; }
    // "control, out": those that have not said Hello, or End.
    std::string PortsWithoutHello() const;
    std::string PortsWithoutEnd() const;

  private:
    struct State {
        FrameReader reader;
        bool hello = false, end = false;
        uint64_t frames = 0, body_bytes = 0;
    };

    Status TakeFrame(Port port, const Frame& frame);
    Status TakeHello(Port port, const Frame& frame);
    Status TakeEnd(Port port, const Frame& frame);
    Status TakeControl(const Frame& frame);
    Status TakeStdio(const Frame& frame);
    Status TakeEvents(const Frame& frame);
    Status TakeOut(const Frame& frame);

    GuestSink& sink_;
    std::array<State, kPorts> ports_;
    Status broken_;
    bool run_sent_ = false, started_ = false;
    std::optional<Exited> exited_;
    std::optional<Failed> command_failed_;
    std::string kernel_;
    uint64_t entry_left_ = 0;  // bytes of the last file that have not come
    bool in_entry_ = false;
};

}  // namespace stockade::guest
