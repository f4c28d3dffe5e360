#include "userspace/guest/guest_port.h"

#include <unistd.h>

#include <array>

#include "userspace/base/errno.h"

namespace stockade::guest {

Status GuestPort::SayHello(absl::string_view kernel) {
    Hello hello;
    hello.set_port(static_cast<uint32_t>(port_));
    hello.set_kernel(std::string(kernel.substr(0, 256)));
    return Tell(Kind::kHello, hello);
}

Status GuestPort::Send(Kind kind, absl::string_view body) {
    ++frames_;
    body_bytes_ += body.size();
    return Annotate(WriteAll(fd_.get(), EncodeFrame(kind, body)), PortName(port_));
}

Status GuestPort::Tell(Kind kind, const google::protobuf::MessageLite& message) {
    SK_ASSIGN_OR_RETURN(const std::string frame, EncodeMessage(kind, message));
    ++frames_;
    body_bytes_ += frame.size() - kHeaderBytes;
    return Annotate(WriteAll(fd_.get(), frame), PortName(port_));
}

Status GuestPort::SayEnd() {
    End end;
    end.set_frames(frames_);
    end.set_body_bytes(body_bytes_);
    SK_ASSIGN_OR_RETURN(const std::string frame, EncodeMessage(Kind::kEnd, end));
    return Annotate(WriteAll(fd_.get(), frame), PortName(port_));
}

Status GuestPort::ReadSome() {
    std::array<char, 32768> buffer;
    ssize_t n;
    do {
        n = read(fd_.get(), buffer.data(), buffer.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ErrnoStatus(errno, PortName(port_));
    if (n == 0) return absl::UnavailableError("the host has closed its end");
    reader_.Add(absl::string_view(buffer.data(), static_cast<size_t>(n)));
    return absl::OkStatus();
}

StatusOr<Frame> GuestPort::Receive() {
    while (true) {
        SK_ASSIGN_OR_RETURN(const std::optional<Frame> frame, reader_.Next());
        if (frame.has_value()) return *frame;
        SK_RETURN_IF_ERROR(ReadSome());
    }
}

}  // namespace stockade::guest
