#include "userspace/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "absl/strings/escaping.h"

namespace stockade {
namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBig(const uint8_t* p) {
    return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 |
           static_cast<uint32_t>(p[2]) << 8 | p[3];
}

void Block(std::array<uint32_t, 8>& state, const uint8_t* data) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = LoadBig(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
        const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
        const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
        const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += add[i];
}

using BlockFn = void (*)(std::array<uint32_t, 8>& state, const uint8_t* data);

#if defined(__x86_64__)
// The instructions keep the state as (a, b, e, f) and (c, d, g, h) and do two rounds at once, by which the two change places.
__attribute__((target("sha,sse4.1,ssse3"))) void BlockByInstructions(std::array<uint32_t, 8>& state, const uint8_t* data) {
    const auto word = [&](int i) { return static_cast<int>(state[i]); };
    const __m128i abef_before = _mm_set_epi32(word(0), word(1), word(4), word(5));
    const __m128i cdgh_before = _mm_set_epi32(word(2), word(3), word(6), word(7));
    __m128i abef = abef_before, cdgh = cdgh_before;
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i w[4];  // the sixteen words that come next, four in each
    for (int i = 0; i < 4; ++i)
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i)), big_endian);
    for (int round = 0; round < 64; round += 4) {
        const __m128i now = w[0];
        const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound + round)));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        const __m128i seven_before = _mm_alignr_epi8(w[3], w[2], 4);
        const __m128i next = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[1]), seven_before), w[3]);
        w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
    }
    alignas(16) uint32_t fe_ba[4], hg_dc[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(fe_ba), _mm_add_epi32(abef, abef_before));
    _mm_store_si128(reinterpret_cast<__m128i*>(hg_dc), _mm_add_epi32(cdgh, cdgh_before));
    state = {fe_ba[3], fe_ba[2], hg_dc[3], hg_dc[2], fe_ba[1], fe_ba[0], hg_dc[1], hg_dc[0]};
}

bool HasInstructions() {
    constexpr unsigned int kSha = 1u << 29;  // EBX of leaf 7
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kSha) != 0 && __builtin_cpu_supports("sse4.1");
}

BlockFn BestBlock() {
    static const BlockFn best = HasInstructions() ? BlockByInstructions : Block;
    return best;
}
#else
BlockFn BestBlock() { return Block; }
#endif

// First 32 bits of the fractional parts of the square roots of the first 8 primes.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// The last `left` bytes of `bytes` in all: with a one bit, zeros, and the length in bits they are one block or two.
std::array<uint8_t, 32> End(std::array<uint32_t, 8>& state, const uint8_t* data, size_t left, uint64_t bytes, BlockFn block) {
    uint8_t tail[128] = {};
    if (left > 0) std::memcpy(tail, data, left);
    tail[left] = 0x80;
    const size_t tail_bytes = left < 56 ? 64 : 128;
    for (int i = 0; i < 8; ++i) tail[tail_bytes - 1 - i] = static_cast<uint8_t>(bytes * 8 >> (8 * i));
    for (size_t at = 0; at < tail_bytes; at += 64) block(state, tail + at);
    std::array<uint8_t, 32> out;
    for (int i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    return out;
}

std::array<uint8_t, 32> Digest(absl::string_view bytes, BlockFn block) {
    std::array<uint32_t, 8> state = kStart;
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    size_t left = bytes.size();
    for (; left >= 64; left -= 64, data += 64) block(state, data);
    return End(state, data, left, bytes.size(), block);
}

std::string HexOf(const std::array<uint8_t, 32>& digest) {
    return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace

std::array<uint8_t, 32> Sha256(absl::string_view bytes) { return Digest(bytes, BestBlock()); }

std::array<uint8_t, 32> Sha256Portable(absl::string_view bytes) { return Digest(bytes, Block); }

std::string Sha256Hex(absl::string_view bytes) { return HexOf(Sha256(bytes)); }

Sha256Stream::Sha256Stream() : state_(kStart) {}

void Sha256Stream::Add(absl::string_view bytes) {
    const BlockFn block = BestBlock();
    size_t held = bytes_ % 64;
    bytes_ += bytes.size();
    if (held > 0) {
        const size_t more = std::min(bytes.size(), 64 - held);
        std::memcpy(block_.data() + held, bytes.data(), more);
        bytes.remove_prefix(more);
        if (held + more < 64) return;
        block(state_, block_.data());
    }
    for (; bytes.size() >= 64; bytes.remove_prefix(64)) block(state_, reinterpret_cast<const uint8_t*>(bytes.data()));
    if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
}

std::array<uint8_t, 32> Sha256Stream::Finish() { return End(state_, block_.data(), bytes_ % 64, bytes_, BestBlock()); }

std::string Sha256Stream::Hex() { return HexOf(Finish()); }

}  // namespace stockade
