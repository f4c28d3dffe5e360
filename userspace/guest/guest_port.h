// The guest's end of a port: counts what it sends, so that its End is true.
#pragma once

#include "userspace/base/fd.h"
#include "userspace/guest/frame.h"

namespace stockade::guest {

// Threads: one. Writing waits until the host takes it: a host that reads slowly slows the command down, as a pipe does.
class GuestPort {
  public:
    GuestPort() = default;
    GuestPort(Port port, Fd fd) : port_(port), fd_(std::move(fd)) {}

    Status SayHello(absl::string_view kernel);
    Status Send(Kind kind, absl::string_view body);
    Status Tell(Kind kind, const google::protobuf::MessageLite& message);
    // The last frame; nothing may be sent after it.
    Status SayEnd();
    // Waits for the next frame of the host. kUnavailable when the host has closed its end.
    StatusOr<Frame> Receive();
    // Reads what is there. For whoever polls fd(); frames come from reader().
    Status ReadSome();

    FrameReader& reader() { return reader_; }
    int fd() const { return fd_.get(); }

  private:
    Port port_ = Port::kControl;
    Fd fd_;
    FrameReader reader_;
    uint64_t frames_ = 0, body_bytes_ = 0;
};

}  // namespace stockade::guest
