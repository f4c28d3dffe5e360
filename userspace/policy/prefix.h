// An address cut down to its prefix, for rules and for what is judged by them.
#pragma once

#include <cstdint>

namespace stockade::policy {

// `family` 4 has its address in the low half of `lo`; 6 in both words, as sk_net_key() takes them.
inline void MaskPrefix(int family, int bits, uint64_t& hi, uint64_t& lo) {
    if (family == 4) {
        lo &= bits == 0 ? 0 : (~uint64_t{0} << (32 - bits)) & 0xffffffff;
        return;
    }
    hi &= bits == 0 ? 0 : bits >= 64 ? ~uint64_t{0} : ~uint64_t{0} << (64 - bits);
    lo &= bits <= 64 ? 0 : ~uint64_t{0} << (128 - bits);
}

}  // namespace stockade::policy
