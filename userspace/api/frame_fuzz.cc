// Any bytes in any cut: the parser answers with messages or an error and holds no more than
// one frame and what was added.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <string>

#include "userspace/api/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t chunk = data[0] / 2 + 1u;
    std::string stream(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] & 1) {
        // Under a header that fits, so that the message's own parser gets its share.
        std::string header = *stockade::api::EncodeFrame({});
        for (size_t i = 0; i < 4; ++i) header[8 + i] = static_cast<char>(stream.size() >> (8 * i));
        stream.insert(0, header);
    }
    stockade::api::FrameParser parser;
    for (size_t at = 0; at < stream.size(); at += chunk) {
        parser.Add(absl::string_view(stream).substr(at, chunk));
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
