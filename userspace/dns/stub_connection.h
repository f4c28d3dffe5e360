// A client's TCP connection: queries in, answers out, several at a time and in any order (RFC 7766).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/dns/stub_lookup.h"

namespace stockade::dns {

// What it holds is bounded: one query's bytes, kStubPipelined queries under way and as many answers, and
// kStubUnreadBytes. Whoever does not read, or asks for more, waits in the kernel's buffers.
class StubConnection {
  public:
    struct Hooks {
        // A whole message. True: its answer comes by Reply, now or later. False: close.
        std::function<bool(absl::string_view message)> on_message;
        // Once; it is to be destroyed after the running function has returned.
        std::function<void()> on_close;
    };

    static StatusOr<std::unique_ptr<StubConnection>> Create(StubContext& context, Fd fd, Hooks hooks);
    ~StubConnection();
    StubConnection(const StubConnection&) = delete;
    StubConnection& operator=(const StubConnection&) = delete;

    void Reply(absl::string_view message);

  private:
    StubConnection(StubContext& context, Fd fd, Hooks hooks);
    bool MayRead() const;
    void OnEvents(uint32_t events);
    void TakeMessages();
    void Settle();
    void ArmIdle();
    void Close();

    StubContext& context_;
    Fd fd_;
    Hooks hooks_;
    std::string in_, out_;
    size_t under_way_ = 0;
    uint32_t watched_ = 0;
    bool ended_ = false;  // the peer sends no more
    bool closed_ = false;
    bool taking_ = false;  // TakeMessages runs
    StubLoop::Timer idle_;
};

}  // namespace stockade::dns
