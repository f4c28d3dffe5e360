#include "userspace/dns/byte_source.h"

#include <algorithm>

#include "absl/strings/strip.h"

namespace stockade::dns {
namespace {
constexpr size_t kChunk = 64 * 1024;
}

Status ByteReader::Fill(size_t want) {
    if (begin_ > 0 && buffer_.size() - begin_ < want) {
        buffer_.erase(0, begin_);
        begin_ = 0;
    }
    while (!ended_ && buffer_.size() - begin_ < want) {
        const size_t had = buffer_.size();
        buffer_.resize(had + kChunk);
        StatusOr<size_t> got = source_.Read(buffer_.data() + had, kChunk);
        buffer_.resize(had + (got.ok() ? *got : 0));
        if (!got.ok()) return Annotate(got.status(), absl::StrCat("byte ", offset_ + had - begin_));
        ended_ = *got == 0;
    }
    return absl::OkStatus();
}

StatusOr<absl::string_view> ByteReader::Peek(size_t want) {
    SK_RETURN_IF_ERROR(Fill(want));
    return absl::string_view(buffer_).substr(begin_, want);
}

StatusOr<absl::string_view> ByteReader::Take(size_t want, bool* at_end) {
    SK_RETURN_IF_ERROR(Fill(want));
    last_ = offset_;
    const size_t have = std::min(want, buffer_.size() - begin_);
    if (at_end) *at_end = have == 0 && want > 0;
    if (have < want && (have > 0 || !at_end))
        return Error(absl::StrCat("the input ends after ", have, " of ", want, " bytes"));
    const absl::string_view taken = absl::string_view(buffer_).substr(begin_, have);
    begin_ += have;
    offset_ += have;
    return taken;
}

StatusOr<absl::string_view> ByteReader::TakeLine(size_t max, bool* at_end) {
    last_ = offset_;
    size_t looked = 0;
    for (size_t want = 256;; want = std::min(want * 4, max + 2)) {
        SK_ASSIGN_OR_RETURN(const absl::string_view seen, Peek(want));
        const size_t end = seen.find('\n', looked);
        *at_end = seen.empty();
        if (end != absl::string_view::npos || seen.size() < want) {
            const absl::string_view line = seen.substr(0, end);
            const size_t taken = std::min(seen.size(), line.size() + 1);
            begin_ += taken;
            offset_ += taken;
            return absl::StripSuffix(line, "\r");
        }
        looked = seen.size();
        if (want >= max) return Error(absl::StrCat("a line of more than ", max, " bytes"));
    }
}

}  // namespace stockade::dns
