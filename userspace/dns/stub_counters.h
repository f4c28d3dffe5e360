// What the stub counts.
#pragma once

#include <atomic>
#include <cstdint>

namespace stockade::dns {

#define SK_STUB_COUNTERS(X)                                                      \
    X(queries_udp, "canonical queries over UDP")                                 \
    X(queries_tcp, "canonical queries over TCP")                                 \
    X(not_canonical, "answered with FORMERR")                                    \
    X(not_messages, "dropped: no header, or itself a response")                  \
    X(not_implemented, "of a type that is a transfer or a wildcard")             \
    X(refused, "by policy")                                                      \
    X(no_such_name, "by policy")                                                 \
    X(cache_hits, "answered from the cache")                                     \
    X(cache_evictions, "entries that made room")                                 \
    X(joined, "answered by a question that was under way")                       \
    X(forwarded, "questions that went upstream")                                 \
    X(answered, "answers by upstreams, given on")                                \
    X(withheld, "answers that the client's owner did not let through")           \
    X(failed, "questions that no upstream answered")                             \
    X(sent_udp, "datagrams to upstreams")                                        \
    X(sent_tcp, "connections to upstreams")                                      \
    X(retries, "questions sent again after a time-out")                          \
    X(strays, "datagrams from an upstream that answer nothing we asked")         \
    X(guessed, "sockets given up for TCP after too many strays")                 \
    X(truncated_upstream, "answers asked for again over TCP")                    \
    X(broken_answers, "answers that cannot be read, or hold what they must not") \
    X(upstream_errors, "SERVFAIL and its like, and sockets that failed")         \
    X(over_client_limit, "kStubInFlightPerClient reached")                       \
    X(over_stub_limit, "kStubInFlight reached")                                  \
    X(over_connections, "kStubConnections reached")                              \
    X(over_upstream_tcp, "kStubUpstreamTcp reached")                             \
    X(truncated, "answers too large for UDP")                                    \
    X(unsent, "answers that a client's socket did not take")                     \
    X(connections, "TCP connections of clients")                                 \
    X(idle_closed, "of them, closed by time")                                    \
    X(socket_pauses, "a client's socket failed and is left alone for a second")

struct StubCounters {
#define X(name, text) uint64_t name = 0;
    SK_STUB_COUNTERS(X)
#undef X
};

// Written by the stub's thread, read by any.
struct StubCounts {
#define X(name, text) std::atomic<uint64_t> name{0};
    SK_STUB_COUNTERS(X)
#undef X

    StubCounters Read() const {
        StubCounters out;
#define X(name, text) out.name = name.load(std::memory_order_relaxed);
        SK_STUB_COUNTERS(X)
#undef X
        return out;
    }
};

inline void Count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace stockade::dns
