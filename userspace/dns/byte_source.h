// Where captures and logs come from: bytes in order, and how many there were.
#pragma once

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// What readers pull from; cmd has one over files and gzip, tests one over memory.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    // Up to `want` bytes; 0 at the end.
    virtual StatusOr<size_t> Read(char* out, size_t want) = 0;
};

class MemorySource : public ByteSource {
  public:
    explicit MemorySource(absl::string_view bytes) : rest_(bytes) {}  // not owned
    StatusOr<size_t> Read(char* out, size_t want) override {
        const size_t n = want < rest_.size() ? want : rest_.size();
        if (n) memcpy(out, rest_.data(), n);
        rest_.remove_prefix(n);
        return n;
    }

  private:
    absl::string_view rest_;
};

// A source with one look ahead and a count, for errors that say where.
class ByteReader {
  public:
    explicit ByteReader(ByteSource& source) : source_(source) {}  // not owned

    // The next bytes without taking them; fewer at the end.
    StatusOr<absl::string_view> Peek(size_t want);
    // Exactly `want` bytes, valid until the next call; empty with `at_end` when not one is left.
    // kInvalidArgument when the input ends within them.
    StatusOr<absl::string_view> Take(size_t want, bool* at_end = nullptr);
    // A line without its end; `at_end` when there is none. kInvalidArgument beyond `max` bytes.
    StatusOr<absl::string_view> TakeLine(size_t max, bool* at_end);
    uint64_t offset() const { return offset_; }
    // kInvalidArgument with the offset of what was taken last.
    Status Error(absl::string_view what) const {
        return absl::InvalidArgumentError(absl::StrCat("byte ", last_, ": ", what));
    }

  private:
    Status Fill(size_t want);

    ByteSource& source_;
    std::string buffer_;
    size_t begin_ = 0;
    uint64_t offset_ = 0;  // of the next byte
    uint64_t last_ = 0;
    bool ended_ = false;
};

}  // namespace stockade::dns
