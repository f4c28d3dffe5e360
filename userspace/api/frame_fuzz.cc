// Any bytes in any cut: the parser answers with messages or an error and holds no more than
// one frame and what was added.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "userspace/api/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t chunk = data[0] + 1u;
    stockade::api::FrameParser parser;
    for (size_t at = 1; at < size; at += chunk) {
        const size_t count = size - at < chunk ? size - at : chunk;
        parser.Add({reinterpret_cast<const char*>(data) + at, count});
        while (true) {
            auto message = parser.Next();
            if (!message.ok()) return 0;
            if (!message->has_value()) break;
            auto again = stockade::api::EncodeFrame(**message);
            if (!again.ok()) abort();
        }
        if (parser.buffered_bytes() > stockade::api::kHeaderBytes + stockade::api::kMaxFrameBytes + chunk)
            abort();
    }
    return 0;
}
