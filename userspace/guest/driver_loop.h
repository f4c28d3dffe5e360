// The host's loop beside a running guest: carries bytes between its ports and the caller's descriptors, goes from stage to
// stage, and stops at the first of: all is told, a rule broken, a time over, QEMU's end, the caller's wish.
#pragma once

#include <poll.h>

#include <array>
#include <string>
#include <vector>

#include "userspace/guest/driver.h"

namespace stockade::guest {

struct DriverEnds {
    std::array<Fd, kPorts> ports;  // in the order of Port
    Fd console;
};

// Keeps the last bytes of a stream that a guest may write to without end.
class Tail {
  public:
    explicit Tail(size_t bytes) : most_(bytes) {}
    void Add(absl::string_view bytes);
    const std::string& text() const { return text_; }

  private:
    size_t most_;
    std::string text_;
};

// Threads: one. Borrows the spec and QEMU.
class DriverLoop : private GuestSink {
  public:
    DriverLoop(const GuestSpec& spec, const Confined& qemu, DriverEnds ends,
               std::function<StatusOr<std::string>()> encode_run)
        : spec_(spec),
          qemu_(qemu),
          ends_(std::move(ends)),
          encode_run_(std::move(encode_run)),
          store_(spec.out_fd, spec.out_limits),
          talk_(*this) {}

    // QEMU may still run after it.
    GuestResult Run();
    // After QEMU's end: what console and standard error still had.
    void TakeLastWords(GuestResult* result);

  private:
    // What waits for a descriptor of the caller, who may read as slowly as he likes.
    struct Output {
        int fd = -1;
        std::string waiting;
        uint64_t bytes = 0;
    };

    Status Stdout(absl::string_view bytes) override { return Keep(&stdout_, bytes); }
    Status Stderr(absl::string_view bytes) override { return Keep(&stderr_, bytes); }
    Status Records(absl::string_view bytes) override;
    Status OutEntry(const Entry& entry) override {
        return spec_.out_fd < 0 ? absl::OkStatus() : store_.Begin(entry);
    }
    Status OutBytes(absl::string_view bytes) override {
        return spec_.out_fd < 0 ? absl::OkStatus() : store_.Bytes(bytes);
    }
    Status OutDone() override { return spec_.out_fd < 0 ? absl::OkStatus() : store_.Done(); }
    Status OutSkipped(const Skipped& skipped) override { return store_.AddSkipped(skipped); }

    Status Keep(Output* output, absl::string_view bytes);
    void Write(Output* output);
    bool Turn();
    int TimeLeftMs();
    void FillPolls();
    void ReadPort(size_t port);
    bool ReadTails();
    void ReadStdin();
    void SendWaiting(size_t port);
    void Advance();
    void EnterStage(Stage stage);
    void Stop(GuestState state, std::string reason);
    void StopLost();
    std::string Where() const;

    const GuestSpec& spec_;
    const Confined& qemu_;
    DriverEnds ends_;
    std::function<StatusOr<std::string>()> encode_run_;
    OutStore store_;
    Conversation talk_;
    GuestResult result_;
    bool stopped_ = false;
    bool acked_ = false, qemu_ended_ = false, stdin_done_ = false;
    Stage stage_ = Stage::kBooting;
    uint64_t deadline_ns_ = 0;  // 0 = none
    Output stdout_, stderr_;
    std::array<std::string, kPorts> to_guest_;  // what waits for a port
    Tail console_{64 << 10};                    // a panic with its trace is some kilobytes
    Tail errors_{4 << 10};
    std::vector<pollfd> polls_;
};

}  // namespace stockade::guest
