// BUILT_FROM framing.cc session.cc
// Any bytes in any cut, with answers in between: an error or calls, no more kept than the bounds say, and what goes out is whole frames.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "userspace/nri/session.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::nri;
    if (size < 2) return 0;
    const size_t chunk = data[0] + 1u;
    const bool refuse = data[1] & 1;
    const absl::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
    Session session({});
    TrunkParser out;
    size_t waiting = 0;
    for (size_t at = 0; at < stream.size(); at += chunk) {
        const bool ok = session.Feed(stream.substr(at, chunk)).ok();
        for (const Call& call : session.TakeCalls()) {
            if (call.kind == CallKind::kSynchronized) {
                if (call.pods.size() + call.containers.size() > kMaxSynchronized) abort();
                continue;
            }
            if (call.container.id().empty()) abort();
            if (++waiting > kMaxWaiting) abort();
            if (data[1] & 2) {
                session.Answer(call.id, refuse ? stockade::Status(absl::AbortedError(call.pod.name())) : absl::OkStatus());
                --waiting;
            }
        }
        if (!ok) session.RefuseWaiting(absl::AbortedError("broken"));
        const std::string bytes = session.TakeOutput();
        if (bytes.size() > kMaxOutputBytes) abort();
        out.Add(bytes);
        while (true) {
            const auto frame = out.Next();
            if (!frame.ok()) abort();
            if (!frame->has_value()) break;
        }
        if (out.buffered_bytes() != 0) abort();
        if (!ok) return 0;
    }
    return 0;
}
