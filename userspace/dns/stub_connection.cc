#include "userspace/dns/stub_connection.h"

#include <sys/epoll.h>

#include <utility>

namespace stockade::dns {
namespace {

constexpr size_t kLengthBytes = 2;

}  // namespace

StubConnection::StubConnection(StubContext& context, Fd fd, Hooks hooks)
    : context_(context), fd_(std::move(fd)), hooks_(std::move(hooks)) {}

StatusOr<std::unique_ptr<StubConnection>> StubConnection::Create(StubContext& context, Fd fd, Hooks hooks) {
    std::unique_ptr<StubConnection> made(new StubConnection(context, std::move(fd), std::move(hooks)));
    StubConnection* connection = made.get();
    made->watched_ = EPOLLIN;
    SK_RETURN_IF_ERROR(context.loop.Watch(connection->fd_.get(), connection->watched_,
                                          [connection](uint32_t events) { connection->OnEvents(events); }));
    connection->ArmIdle();
    return made;
}

StubConnection::~StubConnection() {
    context_.loop.Cancel(&idle_);
    context_.loop.Forget(fd_.get());
}

bool StubConnection::MayRead() const { return under_way_ < kStubPipelined && out_.size() < kStubUnreadBytes; }

void StubConnection::OnEvents(uint32_t events) {
    if (closed_) return;
    if (events & (EPOLLHUP | EPOLLERR)) return Close();
    if (events & EPOLLIN && !ended_ && MayRead()) {
        switch (ReadSome(fd_.get(), kLengthBytes + SK_DNS_QUERY_BYTES, &in_)) {
            case StubRead::kError:
                return Close();
            case StubRead::kEnd:
                ended_ = true;
                break;
            case StubRead::kData:
            case StubRead::kNothing:
                break;
        }
    }
    Settle();
}

void StubConnection::Reply(absl::string_view message) {
    if (closed_) return;
    --under_way_;
    out_ += Framed(message);
    ArmIdle();
    if (!taking_) Settle();
}

// What is in the buffer, as far as it may be answered.
void StubConnection::TakeMessages() {
    taking_ = true;
    while (!closed_ && MayRead() && in_.size() >= kLengthBytes) {
        const size_t size = sk_dns_u16(reinterpret_cast<const uint8_t*>(in_.data()));
        // No canonical query is that long; a name server would read it, we need not.
        if (size > SK_DNS_QUERY_BYTES) {
            Close();
            break;
        }
        if (in_.size() < kLengthBytes + size) break;
        const std::string message = in_.substr(kLengthBytes, size);
        in_.erase(0, kLengthBytes + size);
        ++under_way_;
        ArmIdle();
        if (!hooks_.on_message(message)) Close();
    }
    taking_ = false;
}

// Takes what may be taken, sends what can be sent, and asks for the events that lead on.
void StubConnection::Settle() {
    // Sending makes room for more queries, and those may be answered at once; each turn takes a query out of a
    // buffer that nobody fills meanwhile.
    for (;;) {
        TakeMessages();
        if (closed_) return;
        if (out_.empty()) break;
        const size_t before = out_.size();
        if (!WriteSome(fd_.get(), &out_)) return Close();
        if (out_.size() == before) break;
    }
    if (ended_ && under_way_ == 0 && out_.empty()) return Close();
    const uint32_t wanted =
        (!ended_ && MayRead() ? uint32_t{EPOLLIN} : 0) | (out_.empty() ? 0 : uint32_t{EPOLLOUT});
    if (wanted != watched_) context_.loop.Change(fd_.get(), wanted);
    watched_ = wanted;
}

// Bytes of half a query do not count, or a connection could be held for ever by one now and then.
void StubConnection::ArmIdle() {
    context_.loop.Cancel(&idle_);
    idle_ = context_.loop.After(context_.options.idle_ms, [this] {
        Count(context_.counts.idle_closed);
        Close();
    });
}

void StubConnection::Close() {
    if (closed_) return;
    closed_ = true;
    context_.loop.Cancel(&idle_);
    context_.loop.Forget(fd_.get());
    hooks_.on_close();
}

}  // namespace stockade::dns
