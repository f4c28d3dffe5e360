// Senders of every kind we know, each given a budget id of its own and all the time it wants. What
// counts is what a receiver who knows the encoding can decode from the queries that passed: at most
// 256 bytes a zone, whatever the encoding, the rate, the number of zones and of sandboxes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/dns/embedded.h"
#include "userspace/dns/knowledge.h"

namespace stockade::dns {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr sk_hash_keys kKeys = {0x1234567890abcdef, 0xfedcba0987654321, 42};

// An endless secret; the receiver gets some of its bits with each query that passes.
class Secret {
  public:
    uint64_t Take(int bits) {
        uint64_t out = 0;
        for (int i = 0; i < bits; ++i) {
            state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
            out = out << 1 | (state_ >> 40 & 1);
        }
        return out;
    }
    // Digits of a number in any base.
    uint64_t Below(uint64_t n) { return Take(56) % n; }

  private:
    uint64_t state_ = 0x2545f4914f6cdd1d;
};

struct Sent {
    std::string name;  // below the zone, with a final dot unless empty
    uint16_t type = SK_DNS_TYPE_A;
    double bits = 0;    // that the receiver learns
    double wait_s = 0;  // before it, beyond the pace
};
using Encoder = std::function<Sent(Secret&, uint64_t number)>;

std::string Letters(Secret& secret, absl::string_view alphabet, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += alphabet[secret.Below(alphabet.size())];
    return out;
}

constexpr absl::string_view kHex = "0123456789abcdef", kBase32 = "abcdefghijklmnopqrstuvwxyz234567",
                            kDigits = "0123456789", kLdh = "abcdefghijklmnopqrstuvwxyz0123456789-_",
                            kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

Encoder Alphabet(absl::string_view alphabet, size_t count, uint16_t type = SK_DNS_TYPE_A) {
    return [=](Secret& secret, uint64_t) {
        std::string name;
        for (size_t left = count; left > 0; left -= std::min<size_t>(left, 60))
            absl::StrAppend(&name, Letters(secret, alphabet, std::min<size_t>(left, 60)), ".");
        return Sent{name, type, static_cast<double>(count) * std::log2(alphabet.size())};
    };
}

// The words that the model gives for little: its own dictionary as the code book.
const std::vector<std::string>& CheapWords() {
    static const auto* const words = [] {
        auto* out = new std::vector<std::string>;
        std::multimap<int, std::string> by_cost;
        for (absl::string_view line : absl::StrSplit(EmbeddedModel(), '\n')) {
            const std::vector<std::string> fields = absl::StrSplit(line, ' ');
            if (fields[0] == "word") by_cost.emplace(std::stoi(fields[2]), fields[1]);
        }
        for (const auto& [cost, word] : by_cost) {
            if (out->size() < 1024) out->push_back(word);
        }
        return out;
    }();
    return *words;
}

Encoder Words(int bits, int count) {
    return [=](Secret& secret, uint64_t) {
        Sent sent;
        for (int i = 0; i < count; ++i) absl::StrAppend(&sent.name, CheapWords()[secret.Take(bits)], ".");
        sent.bits = bits * count;
        return sent;
    };
}

// Names said before, one of `n`: which one is the message.
Encoder Repeats(int bits) {
    return [=](Secret& secret, uint64_t number) {
        if (number < 1u << bits) return Sent{absl::StrCat(CheapWords()[number], "."), SK_DNS_TYPE_A, 0};
        return Sent{absl::StrCat(CheapWords()[secret.Take(bits)], "."), SK_DNS_TYPE_A,
                    static_cast<double>(bits)};
    };
}

Encoder Types() {
    static constexpr uint16_t kTypes[16] = {1, 28, 2, 5, 6, 10, 12, 15, 16, 25, 33, 35, 64, 65, 255, 257};
    return [](Secret& secret, uint64_t) { return Sent{"t.", kTypes[secret.Take(4)], 4}; };
}

Encoder AnyType() {
    return [](Secret& secret, uint64_t) { return Sent{"", static_cast<uint16_t>(secret.Take(16)), 16}; };
}

// One name, and the moment is the message: one of 2^bits slots.
Encoder Timing(int bits, double slot_s) {
    return [=](Secret& secret, uint64_t) {
        return Sent{"a.", SK_DNS_TYPE_A, static_cast<double>(bits),
                    static_cast<double>(secret.Take(bits)) * slot_s};
    };
}

Encoder CaseOf(absl::string_view word) {
    return [=](Secret& secret, uint64_t) {
        std::string name(word);
        for (char& c : name) {
            if (secret.Take(1)) c = absl::ascii_toupper(static_cast<unsigned char>(c));
        }
        return Sent{name + ".", SK_DNS_TYPE_A, static_cast<double>(word.size())};
    };
}

Encoder LengthOnly() {
    return [](Secret& secret, uint64_t) {
        return Sent{std::string(1 + secret.Take(5), 'a') + ".", SK_DNS_TYPE_A, 5};
    };
}

// All at once: letters, length, type, and the moment.
Encoder Everything() {
    return [](Secret& secret, uint64_t) {
        const size_t length = 1 + secret.Take(3);
        Sent sent{Letters(secret, kLdh, length) + ".", secret.Take(1) ? uint16_t{1} : uint16_t{28}};
        sent.wait_s = static_cast<double>(secret.Take(4)) * 0.0168;
        sent.bits = static_cast<double>(length) * std::log2(38) + 3 + 1 + 4;
        return sent;
    };
}

// As DNSExfiltrator and its like number their chunks.
Encoder Chunks(absl::string_view alphabet, size_t count) {
    return [=](Secret& secret, uint64_t number) {
        return Sent{absl::StrCat(number, ".", Letters(secret, alphabet, count), "."), SK_DNS_TYPE_A,
                    static_cast<double>(count) * std::log2(alphabet.size())};
    };
}

const std::map<std::string, Encoder>& Encoders() {
    static const auto* const encoders = new std::map<std::string, Encoder>{
        {"hex4", Alphabet(kHex, 4)},
        {"hex12", Alphabet(kHex, 12)},
        {"hex60", Alphabet(kHex, 60)},
        {"base32_1", Alphabet(kBase32, 1)},
        {"base32_8", Alphabet(kBase32, 8)},
        {"base32_90", Alphabet(kBase32, 90)},
        {"decimal9", Alphabet(kDigits, 9)},
        {"ldh3", Alphabet(kLdh, 3)},
        {"ldh40", Alphabet(kLdh, 40)},
        {"ldh94", Alphabet(kLdh, 94)},
        {"base64_10", Alphabet(kBase64, 10)},
        {"base64_90", Alphabet(kBase64, 90)},
        {"txt_base32", Alphabet(kBase32, 30, SK_DNS_TYPE_TXT)},
        {"null_hex", Alphabet(kHex, 30, SK_DNS_TYPE_NULL)},
        {"words1", Words(10, 1)},
        {"words3", Words(10, 3)},
        {"words_cheap", Words(4, 1)},
        {"letters16", Repeats(4)},
        {"letters2", Repeats(1)},
        {"letters256", Repeats(8)},
        {"types", Types()},
        {"any_type", AnyType()},
        {"case", CaseOf("abcdefghijklmnop")},
        {"case1", CaseOf("a")},
        {"length", LengthOnly()},
        {"everything", Everything()},
        {"chunks64", Chunks(kBase64, 50)},
        {"chunks_hex", Chunks(kHex, 40)},
        {"timing4", Timing(4, 0.0168)},
        {"timing10", Timing(10, 0.0168)},
        {"timing16", Timing(16, 0.0168)},
        {"timing_minute", Timing(6, 1.0)},
    };
    return *encoders;
}

const Knowledge& Shared() {
    static const Knowledge* const knowledge = new Knowledge(*MakeKnowledge({}));
    return *knowledge;
}

// Bits that came through to each zone, until nothing has passed for a long time.
std::map<std::string, double> Leak(Meter& meter, const Encoder& encoder,
                                   const std::vector<std::string>& zones, double pace_s) {
    std::map<std::string, double> learned;
    Secret secret;
    double now_s = 1;
    uint64_t refused = 0;
    for (uint64_t number = 0; refused < 50 * zones.size() && number < 200'000; ++number) {
        const std::string& zone = zones[number % zones.size()];
        const Sent sent = encoder(secret, number / zones.size());
        now_s += pace_s + sent.wait_s;
        const std::string name = sent.name + zone, lower = absl::AsciiStrToLower(name);
        const Decision decision = meter.Ask(
            {.name = lower, .sent = name, .type = sent.type, .time_ns = static_cast<uint64_t>(now_s * 1e9)});
        if (decision.verdict == Verdict::kDrop) {
            ++refused;
            continue;
        }
        refused = 0;
        learned[zone] += sent.bits;
    }
    EXPECT_GE(refused, 50 * zones.size()) << "it never ended";
    return learned;
}

class EncoderTest : public testing::TestWithParam<std::string> {
  protected:
    const Encoder& encoder() const { return Encoders().at(GetParam()); }
};

TEST_P(EncoderTest, TellsAZoneAtMostItsBudget) {
    for (const double pace_s : {0.001, 1.0, 600.0}) {
        Meter meter(Shared(), MeterState(kKeys, 0));
        const double bits = Leak(meter, encoder(), {"evil-lab.org"}, pace_s)["evil-lab.org"];
        EXPECT_LE(bits, 256 * 8) << pace_s;
        EXPECT_EQ(bits > 0, GetParam() != "letters256") << pace_s;
        if (pace_s == 600.0)
            std::cout << GetParam() << ": " << bits / 8 << " bytes at a query per ten minutes\n";
    }
}

TEST_P(EncoderTest, TellsAHundredZonesAtMostTheTotal) {
    std::vector<std::string> zones;
    for (int i = 0; i < 100; ++i) zones.push_back(absl::StrCat("evil", i, ".org"));
    Meter meter(Shared(), MeterState(kKeys, 0));
    double all = 0;
    for (const auto& [zone, bits] : Leak(meter, encoder(), zones, 0.01)) {
        EXPECT_LE(bits, 256 * 8) << zone;
        all += bits;
    }
    EXPECT_LE(all, 2048 * 8);
    EXPECT_EQ(all > 0, GetParam() != "letters16" && GetParam() != "letters256");
}

// The budget belongs to the session: a hundred sandboxes, one after the other, each of which takes
// the state up where the last one left it.
TEST_P(EncoderTest, TellsAZoneNoMoreFromAHundredSandboxes) {
    std::string state = MeterState(kKeys, 0).Save();
    double bits = 0;
    Secret secret;
    double now_s = 1;
    for (int sandbox = 0; sandbox < 100; ++sandbox) {
        Meter meter(Shared(), *MeterState::Restore(state));
        for (uint64_t number = 0; number < 10; ++number) {
            const Sent sent = encoder()(secret, number + 10 * static_cast<uint64_t>(sandbox));
            now_s += 1 + sent.wait_s;
            const std::string name = sent.name + "evil-lab.org", lower = absl::AsciiStrToLower(name);
            const auto time_ns = static_cast<uint64_t>(now_s * 1e9);
            if (meter.Ask({.name = lower, .sent = name, .type = sent.type, .time_ns = time_ns}).verdict !=
                Verdict::kDrop)
                bits += sent.bits;
        }
        state = meter.state().Save();
    }
    EXPECT_LE(bits, 256 * 8);
    EXPECT_EQ(bits > 0, GetParam() != "letters256");
}

std::vector<std::string> EncoderNames() {
    std::vector<std::string> names;
    for (const auto& [name, encoder] : Encoders()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(All, EncoderTest, testing::ValuesIn(EncoderNames()),
                         [](const auto& info) { return info.param; });

// The control run: without a budget the same senders get through, so it is the budget that stops them.
TEST(Encoder, WithoutABudgetEverythingComesThrough) {
    KnowledgeTexts texts;
    texts.budgets.zone = texts.budgets.total = Budgets::kUnlimited;
    const Knowledge knowledge = *MakeKnowledge(texts);
    for (const char* which : {"hex12", "base32_8", "words1", "letters16", "timing4"}) {
        Meter meter(knowledge, MeterState(kKeys, 0));
        Secret secret;
        double bits = 0;
        for (uint64_t number = 0; number < 2000; ++number) {
            const Sent sent = Encoders().at(which)(secret, number);
            const std::string name = sent.name + "evil-lab.org";
            if (meter.Ask({.name = name, .sent = name, .type = sent.type, .time_ns = number * kSecond})
                    .verdict != Verdict::kDrop)
                bits += sent.bits;
        }
        EXPECT_GT(bits, 2 * 256 * 8) << which;
    }
}

}  // namespace
}  // namespace stockade::dns
