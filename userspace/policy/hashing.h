// The hash of bpf/wire/hash.h over strings that user space holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "bpf/wire/hash.h"

namespace stockade::policy {

inline uint64_t HashString(const sk_hash_keys& keys, absl::string_view text) {
    uint64_t h = sk_hash_start(&keys, static_cast<uint32_t>(text.size()));
    for (size_t at = 0; at < text.size(); at += 8) {
        // Bytes of a word are little-endian by definition, as the kernel's loads are on the
        // machines we support; a big-endian one would need a swap on both sides.
        uint64_t word = 0;
        std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
        h = sk_hash_word(&keys, h, word);
    }
    return h;
}

}  // namespace stockade::policy
