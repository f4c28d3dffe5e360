// Fields of a serialised protobuf message, one after the other, without a message being made of them.
//
//   WireReader reader(bytes);
//   for (WireField field; reader.Next(&field);) ...
//   if (!reader.ok()) ...   // what protobuf may still take, by its own reader
//
// Stricter than protobuf: what no serialiser writes (numbers that are longer than they must be, groups) is not ok.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace stockade::model {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
    uint32_t number = 0;
    WireType type = WireType::kVarint;
    uint64_t value = 0;         // of a number; of bytes, how many they are
    absl::string_view bytes = "";  // borrowed
};

class WireReader {
  public:
    explicit WireReader(absl::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    // False at the end, and at what is not ok.
    bool Next(WireField* field) {
        if (at_ == end_) return false;
        uint64_t tag = 0;
        if (!Varint(&tag) || tag < 8 || tag > kMaxTag) return Fail();
        field->number = static_cast<uint32_t>(tag >> 3);
        field->type = static_cast<WireType>(tag & 7);
        switch (field->type) {
            case WireType::kVarint:
                field->bytes = "";
                return Varint(&field->value) || Fail();
            case WireType::kBytes:
                if (!Varint(&field->value) || field->value > Left()) return Fail();
                field->bytes = {at_, static_cast<size_t>(field->value)};
                at_ += field->value;
                return true;
            case WireType::kFixed64:
                return Fixed(8, field) || Fail();
            case WireType::kFixed32:
                return Fixed(4, field) || Fail();
        }
        return Fail();
    }
    bool ok() const { return ok_; }
    // Where the next field starts.
    const char* at() const { return at_; }

  private:
    static constexpr uint64_t kMaxTag = (uint64_t{1} << 32) - 1;

    uint64_t Left() const { return static_cast<uint64_t>(end_ - at_); }
    bool Fail() {
        ok_ = false;
        at_ = end_;
        return false;
    }
    bool Fixed(size_t bytes, WireField* field) {
        if (Left() < bytes) return false;
        field->bytes = {at_, bytes};
        at_ += bytes;
        return true;
    }
    bool Varint(uint64_t* value) {
        uint64_t sum = 0;
        for (unsigned shift = 0; at_ != end_; shift += 7) {
            const auto byte = static_cast<uint8_t>(*at_++);
            // The tenth byte has one bit left of 64; a last byte of 0 says nothing.
            if (shift == 63 && byte > 1) return false;
            sum |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) {
                *value = sum;
                return byte != 0 || shift == 0;
            }
        }
        return false;
    }

    const char* at_;
    const char* end_;
    bool ok_ = true;
};

inline size_t WriteVarint(uint64_t value, char* to) {
    size_t bytes = 0;
    for (; value >= 0x80; value >>= 7) to[bytes++] = static_cast<char>(value | 0x80);
    to[bytes++] = static_cast<char>(value);
    return bytes;
}
// A field of each kind, as it stands in a message.
inline std::string WireNumber(uint32_t number, uint64_t value) {
    char text[20];
    const size_t tag = WriteVarint(uint64_t{number} << 3, text);
    return std::string(text, tag + WriteVarint(value, text + tag));
}
inline std::string WireText(uint32_t number, absl::string_view value) {
    char text[20];
    const size_t tag = WriteVarint(uint64_t{number} << 3 | static_cast<uint64_t>(WireType::kBytes), text);
    std::string out(text, tag + WriteVarint(value.size(), text + tag));
    return out.append(value.data(), value.size());
}

}  // namespace stockade::model
