#include "userspace/dns/stub_lookup.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

namespace stockade::dns {
namespace {

// Datagrams read in a row, before others have their turn.
constexpr int kBurst = 16;
// We offer kStubUdpBytes; what is longer is cut, and then broken.
constexpr size_t kDatagramBytes = 4096;

}  // namespace

StubLookup::StubLookup(StubContext& context, const sk_dns_question& question,
                       const std::vector<UpstreamAddress>& upstreams, size_t* upstream_tcp, Done done)
    : context_(context),
      question_(question),
      upstreams_(upstreams),
      upstream_tcp_(upstream_tcp),
      done_(std::move(done)) {}

StubLookup::~StubLookup() {
    context_.loop.Cancel(&retry_);
    context_.loop.Cancel(&deadline_);
    while (!tries_.empty()) Close(tries_.back().get());
}

void StubLookup::Start() {
    deadline_ = context_.loop.After(context_.options.deadline_ms, [this] { Finish(nullptr); });
    // Not from here: whoever starts it may not have noted it down yet.
    retry_ = context_.loop.After(0, [this] { Next(); });
}

void StubLookup::ArmRetry(uint32_t ms) {
    context_.loop.Cancel(&retry_);
    if (made_ == kStubTries) return;
    retry_ = context_.loop.After(ms, [this] {
        Count(context_.counts.retries);
        Next();
    });
}

void StubLookup::Next() {
    const UpstreamAddress& to = upstreams_[made_++ % upstreams_.size()];
    ArmRetry(context_.options.retry_ms);
    Open(to, false);
}

StatusOr<std::unique_ptr<StubLookup::Try>> StubLookup::Connect(const UpstreamAddress& to, bool tcp) {
    SK_ASSIGN_OR_RETURN(const uint16_t id, RandomId());
    SK_ASSIGN_OR_RETURN(Fd fd, ConnectStubSocket(to, tcp ? SOCK_STREAM : SOCK_DGRAM));
    auto made =
        std::make_unique<Try>(Try{.to = &to, .id = id, .tcp = tcp, .fd = std::move(fd), .out = {}, .in = {}});
    Try* attempt = made.get();
    SK_RETURN_IF_ERROR(context_.loop.Watch(attempt->fd.get(), tcp ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                           [this, attempt](uint32_t events) {
                                               if (attempt->tcp)
                                                   OnTcp(attempt, events);
                                               else
                                                   OnUdp(attempt);
                                           }));
    return made;
}

void StubLookup::Open(const UpstreamAddress& to, bool tcp) {
    auto made = Connect(to, tcp);
    if (!made.ok()) {
        // No descriptors left, or no route.
        Count(context_.counts.upstream_errors);
        return GiveUpIfNothingIsLeft();
    }
    Try* attempt = made->get();
    tries_.push_back(*std::move(made));
    if (tcp) ++*upstream_tcp_;
    Count(tcp ? context_.counts.sent_tcp : context_.counts.sent_udp);
    const std::string query = WriteUpstreamQuery(question_, attempt->id);
    if (tcp)
        attempt->out = Framed(query);
    else if (send(attempt->fd.get(), query.data(), query.size(), MSG_NOSIGNAL) < 0)
        Fail(attempt);
}

void StubLookup::OnUdp(Try* attempt) {
    std::array<char, kDatagramBytes> buffer;
    for (int i = 0; i < kBurst; ++i) {
        const ssize_t size = recv(attempt->fd.get(), buffer.data(), buffer.size(), 0);
        if (size < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            return Fail(attempt);  // ECONNREFUSED: nobody listens there
        }
        const absl::string_view message(buffer.data(), static_cast<size_t>(size));
        StubAnswer answer;
        const StubReading reading =
            ReadStubAnswer(message, question_, attempt->id, context_.options.min_ttl_s, &answer);
        if (reading != StubReading::kStray) return Take(attempt, reading, answer);
        Count(context_.counts.strays);
        if (++attempt->strays < kStubStrays) continue;
        Count(context_.counts.guessed);
        return AskOverTcp(attempt);
    }
}

void StubLookup::OnTcp(Try* attempt, uint32_t events) {
    if (events & EPOLLOUT && !attempt->out.empty()) {
        if (!WriteSome(attempt->fd.get(), &attempt->out)) return Fail(attempt);
        if (attempt->out.empty()) context_.loop.Change(attempt->fd.get(), EPOLLIN);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    const StubRead read =
        ReadSome(attempt->fd.get(), 2 + kStubMessageBytes - attempt->in.size(), &attempt->in);
    if (read == StubRead::kNothing) return;
    if (read != StubRead::kData) return Fail(attempt);
    if (attempt->in.size() < 2) return;
    const size_t size = sk_dns_u16(reinterpret_cast<const uint8_t*>(attempt->in.data()));
    if (attempt->in.size() < 2 + size) return;
    StubAnswer answer;
    const absl::string_view message = absl::string_view(attempt->in).substr(2, size);
    Take(attempt, ReadStubAnswer(message, question_, attempt->id, context_.options.min_ttl_s, &answer),
         answer);
}

void StubLookup::Take(Try* attempt, StubReading reading, const StubAnswer& answer) {
    switch (reading) {
        case StubReading::kAnswer:
            return Finish(&answer);
        case StubReading::kTruncated:
            if (attempt->tcp) break;
            Count(context_.counts.truncated_upstream);
            return AskOverTcp(attempt);
        case StubReading::kFailure:
            return Fail(attempt);
        case StubReading::kStray:
        case StubReading::kBroken:
            break;
    }
    Count(context_.counts.broken_answers);
    Fail(attempt);
}

void StubLookup::AskOverTcp(Try* attempt) {
    const UpstreamAddress& to = *attempt->to;
    Close(attempt);
    if (*upstream_tcp_ >= kStubUpstreamTcp) {
        Count(context_.counts.over_upstream_tcp);
        return GiveUpIfNothingIsLeft();
    }
    ArmRetry(context_.options.upstream_tcp_ms);
    Open(to, true);
}

void StubLookup::Fail(Try* attempt) {
    Count(context_.counts.upstream_errors);
    Close(attempt);
    GiveUpIfNothingIsLeft();
}

void StubLookup::GiveUpIfNothingIsLeft() {
    if (static_cast<size_t>(made_) < std::min<size_t>(kStubTries, upstreams_.size())) {
        // By a timer, so that a row of upstreams that fail at once is no recursion.
        context_.loop.Cancel(&retry_);
        retry_ = context_.loop.After(0, [this] { Next(); });
    } else if (tries_.empty()) {
        Finish(nullptr);
    }
}

void StubLookup::Close(Try* attempt) {
    context_.loop.Forget(attempt->fd.get());
    if (attempt->tcp) --*upstream_tcp_;
    const auto it =
        std::find_if(tries_.begin(), tries_.end(), [&](const auto& made) { return made.get() == attempt; });
    tries_.erase(it);
}

void StubLookup::Finish(const StubAnswer* answer) {
    if (finished_) return;
    finished_ = true;
    context_.loop.Cancel(&retry_);
    context_.loop.Cancel(&deadline_);
    done_(answer);
}

}  // namespace stockade::dns
