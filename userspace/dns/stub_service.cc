#include "userspace/dns/stub_service.h"

#include <sys/epoll.h>

#include <array>
#include <utility>

#include "userspace/base/clock.h"

namespace stockade::dns {
namespace {

// Datagrams or connections taken in a row, before other clients have their turn.
constexpr int kBurst = 32;
constexpr uint32_t kPauseMs = 1000;

}  // namespace

StubService::StubService(StubContext& context, Fd udp, Fd listener, StubClient client)
    : context_(context), udp_(std::move(udp)), listener_(std::move(listener)), client_(std::move(client)) {}

StatusOr<std::unique_ptr<StubService>> StubService::Create(StubContext& context, Fd udp, Fd listener,
                                                           StubClient client) {
    std::unique_ptr<StubService> made(
        new StubService(context, std::move(udp), std::move(listener), std::move(client)));
    SK_RETURN_IF_ERROR(made->Watch());
    return made;
}

Status StubService::Watch() {
    SK_RETURN_IF_ERROR(context_.loop.Watch(udp_.get(), EPOLLIN, [this](uint32_t) { OnUdp(); }));
    return context_.loop.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnConnection(); });
}

StubService::~StubService() {
    context_.loop.Cancel(&pause_);
    context_.loop.Forget(udp_.get());
    context_.loop.Forget(listener_.get());
    context_.in_flight -= in_flight_;
}

void StubService::OnUdp() {
    // One more than a canonical query may have shows that it is too long.
    std::array<char, SK_DNS_QUERY_BYTES + 1> buffer;
    for (int i = 0; i < kBurst; ++i) {
        Asker asker;
        asker.peer_size = sizeof(asker.peer);
        const ssize_t size = recvfrom(udp_.get(), buffer.data(), buffer.size(), 0,
                                      reinterpret_cast<sockaddr*>(&asker.peer), &asker.peer_size);
        if (size < 0) {
            if (errno != EAGAIN && errno != EINTR) Pause();
            return;
        }
        const absl::string_view message(buffer.data(), static_cast<size_t>(size));
        if (ReadStubQuery(message, &asker.query) == SK_DNS_OK) {
            Count(context_.counts.queries_udp);
            Ask(std::move(asker));
            continue;
        }
        const std::string error = WriteFormError(message);
        Count(error.empty() ? context_.counts.not_messages : context_.counts.not_canonical);
        if (!error.empty()) Send(asker, error);
    }
}

void StubService::OnConnection() {
    for (int i = 0; i < kBurst; ++i) {
        Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd.ok()) {
            if (errno == EAGAIN) return;
            // Of one connection that was given up; the next one may be well.
            if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
            return Pause();  // EMFILE and its like
        }
        Count(context_.counts.connections);
        if (connections_.size() >= kStubConnections)
            Count(context_.counts.over_connections);
        else
            Accept(std::move(fd));
    }
}

void StubService::Accept(Fd fd) {
    const uint64_t number = next_connection_++;
    StubConnection::Hooks hooks;
    hooks.on_message = [this, number](absl::string_view message) { return OnMessage(number, message); };
    hooks.on_close = [this, number, alive = std::weak_ptr<bool>(alive_)] {
        context_.loop.Defer([this, number, alive] {
            if (!alive.expired()) connections_.erase(number);
        });
    };
    auto made = StubConnection::Create(context_, std::move(fd), std::move(hooks));
    if (made.ok()) connections_[number] = *std::move(made);
}

bool StubService::OnMessage(uint64_t connection, absl::string_view message) {
    Asker asker;
    asker.connection = connection;
    if (ReadStubQuery(message, &asker.query) == SK_DNS_OK) {
        Count(context_.counts.queries_tcp);
        Ask(std::move(asker));
        return true;
    }
    const std::string error = WriteFormError(message);
    Count(error.empty() ? context_.counts.not_messages : context_.counts.not_canonical);
    if (!error.empty()) Send(asker, error);
    return !error.empty();
}

void StubService::Pause() {
    Count(context_.counts.socket_pauses);
    // Not by an empty set of events: an error is reported all the same.
    context_.loop.Forget(udp_.get());
    context_.loop.Forget(listener_.get());
    context_.loop.Cancel(&pause_);
    pause_ = context_.loop.After(kPauseMs, [this] {
        if (Watch().ok()) return;
        Pause();
    });
}

void StubService::Ask(Asker asker) {
    const StubQuery& query = asker.query;
    const uint16_t type = query.question.type;
    if (IsMetaType(type)) {
        Count(context_.counts.not_implemented);
        return Send(asker, WriteStubError(query, kStubNotImplemented));
    }
    switch (client_.judge({.name = query.name, .type = type, .tcp = asker.connection != 0})) {
        case StubPolicy::kForward:
            return Forward(std::move(asker));
        case StubPolicy::kFromCache:
            if (const StubCache::Hit hit = cache_.Find(StubCache::Key(query.name, type), BootNow()); hit.answer) {
                Count(context_.counts.cache_hits);
                return Give(asker, *hit.answer, hit.age_s, true);
            }
            Count(context_.counts.refused);
            return Send(asker, WriteStubError(query, kStubRefused));
        case StubPolicy::kRefuse:
            Count(context_.counts.refused);
            return Send(asker, WriteStubError(query, kStubRefused));
        case StubPolicy::kNoSuchName:
            Count(context_.counts.no_such_name);
            return Send(asker, WriteStubError(query, kStubNoSuchName));
    }
}

void StubService::Forward(Asker asker) {
    const StubCache::Key key(asker.query.name, asker.query.question.type);
    if (const StubCache::Hit hit = cache_.Find(key, BootNow()); hit.answer) {
        Count(context_.counts.cache_hits);
        return Give(asker, *hit.answer, hit.age_s, true);
    }
    const bool client_full = in_flight_ >= kStubInFlightPerClient;
    if (client_full || context_.in_flight >= kStubInFlight) {
        Count(client_full ? context_.counts.over_client_limit : context_.counts.over_stub_limit);
        return Give(asker, StubAnswer(), 0, false);
    }
    ++in_flight_;
    ++context_.in_flight;
    Flight& flight = flights_[key];
    const sk_dns_question question = asker.query.question;
    flight.askers.push_back(std::move(asker));
    // Asked once for all: a guesser must not have many ids to hit (RFC 5452 section 5).
    if (flight.lookup) return Count(context_.counts.joined);
    Count(context_.counts.forwarded);
    flight.lookup =
        std::make_unique<StubLookup>(context_, question, client_.upstreams, &upstream_tcp_,
                                     [this, key](const StubAnswer* answer) { OnAnswer(key, answer); });
    flight.lookup->Start();
}

void StubService::OnAnswer(const StubCache::Key& key, const StubAnswer* answer) {
    const auto node = flights_.extract(key);
    // It runs still.
    context_.loop.Defer([lookup = std::shared_ptr<StubLookup>(std::move(node.mapped().lookup))] {});
    const std::vector<Asker>& askers = node.mapped().askers;
    in_flight_ -= askers.size();
    context_.in_flight -= askers.size();
    Count(answer ? context_.counts.answered : context_.counts.failed);
    if (answer && cache_.Insert(key, *answer, BootNow())) Count(context_.counts.cache_evictions);
    const StubAnswer nothing;
    for (const Asker& asker : askers) Give(asker, answer ? *answer : nothing, 0, &asker != &askers.front());
}

void StubService::Give(const Asker& asker, const StubAnswer& answer, uint32_t age_s, bool from_cache) {
    const bool tcp = asker.connection != 0;
    std::string message =
        WriteStubAnswer(asker.query, answer, age_s, tcp ? kStubMessageBytes : asker.query.udp_bytes);
    // There is nothing larger to turn to than TCP.
    if (tcp && IsTruncated(message)) return Give(asker, StubAnswer(), 0, from_cache);
    StubAnswered told = DescribeStubAnswer(asker.query, answer, age_s);
    told.tcp = tcp;
    told.from_cache = from_cache;
    if (IsTruncated(message)) {
        Count(context_.counts.truncated);
        told.truncated = true;
        told.addresses.clear();
        told.downlink_bytes = 0;
    }
    if (!client_.answered(told)) {
        Count(context_.counts.withheld);
        message = WriteStubError(asker.query, kStubServerFailure);
    }
    Send(asker, message);
}

void StubService::Send(const Asker& asker, absl::string_view message) {
    if (asker.connection != 0) {
        const auto it = connections_.find(asker.connection);
        if (it != connections_.end()) it->second->Reply(message);
        return;
    }
    if (sendto(udp_.get(), message.data(), message.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&asker.peer), asker.peer_size) < 0)
        Count(context_.counts.unsent);
}

}  // namespace stockade::dns
