// Any bytes on any port in any cut, with the order to run given when the guest is ready for it: the host's half answers
// with steps or one error, holds no more than a frame a port, and what it calls complete is.
// BUILT_FROM frame.cc conversation.cc
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <algorithm>
#include <string>

#include "userspace/guest/conversation.h"

namespace {

using namespace stockade::guest;

class Counting : public GuestSink {
  public:
    stockade::Status Stdout(absl::string_view) override { return absl::OkStatus(); }
    stockade::Status Stderr(absl::string_view) override { return absl::OkStatus(); }
    stockade::Status Records(absl::string_view) override { return absl::OkStatus(); }
    stockade::Status OutEntry(const Entry& entry) override {
        if (open) abort();
        open = true;
        left = entry.size_bytes();
        return absl::OkStatus();
    }
    stockade::Status OutBytes(absl::string_view bytes) override {
        if (!open || bytes.size() > left) abort();
        left -= bytes.size();
        return absl::OkStatus();
    }
    stockade::Status OutDone() override {
        if (!open || left != 0) abort();
        open = false;
        return absl::OkStatus();
    }
    stockade::Status OutSkipped(const Skipped&) override {
        if (open) abort();
        return absl::OkStatus();
    }
    bool open = false;
    uint64_t left = 0;
};

}  // namespace

// The input: pieces of (1 byte port and form, 1 byte length, bytes). A form of 0 gives the bytes as they are; others put
// the header of a frame of kind 15 + form before them, so that the search gets past it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Counting sink;
    Conversation talk(sink);
    bool broken = false;
    while (size >= 2) {
        const auto port = static_cast<Port>(data[0] & 3);
        const int form = data[0] >> 2 & 15;
        const size_t length = std::min<size_t>(data[1], size - 2);
        std::string bytes(reinterpret_cast<const char*>(data) + 2, length);
        data += 2 + length;
        size -= 2 + length;
        const auto kind = static_cast<uint8_t>(15 + form);
        if (form != 0 && bytes.size() <= MaxBodyBytes(kind).value_or(0))
            bytes = EncodeFrame(static_cast<Kind>(kind), bytes);
        const bool ok = talk.Take(port, bytes).ok();
        if (broken && ok) abort();
        broken = !ok;
        if (talk.stage() == Stage::kReady) talk.RunSent();
    }
    if (talk.stage() == Stage::kComplete && (sink.open || talk.has_exited() == talk.failed().has_value()))
        abort();
    return 0;
}
