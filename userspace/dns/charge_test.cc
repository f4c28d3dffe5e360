#include "userspace/dns/charge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "userspace/dns/code_model.h"

namespace stockade::dns {
namespace {

double Share(double units) { return std::exp2(-units / SK_DNS_BIT); }

// How many subdomains of n characters there are, as a logarithm would lose the end of the sum: dots
// stand between letters only. letters[n] end in a letter.
std::vector<double> Subdomains(double letters_of_alphabet, size_t up_to) {
    std::vector<double> ends_in_letter(up_to + 1), out(up_to + 1);
    double ends_in_dot = 0;
    out[0] = 1;  // the zone itself
    for (size_t n = 1; n <= up_to; ++n) {
        const double before = n == 1 ? 1 : ends_in_letter[n - 1];
        const double dots = n == 1 ? 0 : ends_in_dot;
        ends_in_dot = n == 1 ? 0 : ends_in_letter[n - 1];
        ends_in_letter[n] = letters_of_alphabet * (before + dots);
        out[n] = ends_in_letter[n];
    }
    return out;
}

double AllTypes() {
    double sum = 0;
    for (uint32_t type = 0; type <= 65535; ++type) sum += Share(sk_dns_charge_type(type));
    return sum;
}

double AllNewNames() {
    double sum = 0;
    const std::vector<double> lower = Subdomains(38, SK_DNS_SUBDOMAIN_CHARS),
                              mixed = Subdomains(64, SK_DNS_SUBDOMAIN_CHARS);
    for (size_t n = 0; n <= SK_DNS_SUBDOMAIN_CHARS; ++n) {
        const auto chars = static_cast<uint32_t>(n);
        const double type = SK_DNS_CHARGE_TYPE_USUAL;
        sum += lower[n] * Share(sk_dns_charge_new(chars, 0, SK_DNS_TYPE_A) - type);
        sum += mixed[n] * Share(sk_dns_charge_new(chars, 1, SK_DNS_TYPE_A) - type);
    }
    return sum * AllTypes();
}

// The promise of the whole meter: over everything that a query can be, after any history, the
// charges sum to at most 1. So N bits of budget tell nobody more than N bits (Kraft, McMillan).
TEST(Charge, AllThatAQueryCanBeIsOneCode) {
    const double worst = AllNewNames();
    // Labels of the model form a code of their own (code_model_test.cc).
    const double model = Share(kChargeModel) * AllTypes();
    for (const uint32_t names : {1u, 2u, 3u, 16u, 17u, 400u, 760u * 16}) {
        const double repeats = names * Share(sk_dns_charge_repeat(names));
        double retypes = 0;
        for (uint32_t type = 0; type <= 65535; ++type) retypes += names * Share(ChargeRetype(names, type));
        const double sum = worst + model + repeats + retypes + Share(kChargeSibling);
        EXPECT_LE(sum, 1.0) << names;
        if (names == 16)
            std::cout << "new " << worst << " model " << model << " repeats " << repeats << " retypes "
                      << retypes << "\n";
    }
}

TEST(Charge, AllMomentsAreOneCode) {
    double sum = 0;
    for (uint64_t quantum = 0; quantum < (1 << 15); ++quantum)
        sum += Share(sk_dns_charge_gap(quantum << SK_DNS_QUANTUM_SHIFT));
    // Later ones class by class: all of a class cost the same.
    for (int k = 15; k < 40; ++k)
        sum += std::exp2(k) * Share(sk_dns_charge_gap(uint64_t{1} << (k + SK_DNS_QUANTUM_SHIFT)));
    EXPECT_LE(sum, 1.0 + 1e-9);
    EXPECT_GT(sum, 0.99);
}

// DESIGN.md section 9: at least 5.3 bits a character and 6 a name, 6.3 with upper case, and for a
// repeat the larger of 8 and the bits of which one it is and 4.
TEST(Charge, NothingIsCheaperThanTheDesignSays) {
    for (uint32_t chars = 0; chars <= 253; ++chars) {
        EXPECT_GE(sk_dns_charge_new(chars, 0, SK_DNS_TYPE_A), (5.3 * chars + 6) * SK_DNS_BIT);
        EXPECT_GE(sk_dns_charge_new(chars, 1, SK_DNS_TYPE_A), (6.3 * chars + 6) * SK_DNS_BIT);
        EXPECT_GE(sk_dns_charge_new(chars, 0, SK_DNS_TYPE_TXT), (5.3 * chars + 6 + 4) * SK_DNS_BIT);
    }
    for (uint32_t names = 1; names < 10000; names *= 3)
        EXPECT_GE(sk_dns_charge_repeat(names), std::max(8.0, std::ceil(std::log2(names)) + 4) * SK_DNS_BIT)
            << names;
    EXPECT_EQ(sk_dns_charge_repeat(0), 8 * SK_DNS_BIT);
}

TEST(Charge, ALongerPauseNeverCostsLess) {
    uint32_t last = 0;
    for (uint64_t gap = 1; gap < uint64_t{1} << 62; gap += gap / 4 + 1) {
        EXPECT_GE(sk_dns_charge_gap(gap), last) << gap;
        last = sk_dns_charge_gap(gap);
    }
    EXPECT_EQ(sk_dns_charge_gap(0), SK_DNS_BIT);
    // Ten minutes: 35,762 quanta.
    EXPECT_EQ(sk_dns_charge_gap(600'000'000'000), (5 + 15 + 1) * SK_DNS_BIT);
}

TEST(Charge, NamesOfAddressesAreKnownByTheirForm) {
    EXPECT_EQ(ReverseBits("4.3.2.1.in-addr.arpa"), 32u);
    EXPECT_EQ(ReverseBits("256.3.2.1.in-addr.arpa"), 0u);
    EXPECT_EQ(ReverseBits("04.3.2.1.in-addr.arpa"), 0u);
    EXPECT_EQ(ReverseBits("x.4.3.2.1.in-addr.arpa"), 0u);
    EXPECT_EQ(ReverseBits("in-addr.arpa"), 0u);
    std::string six = "ip6.arpa";
    for (int i = 0; i < 32; ++i) six = "a." + six;
    EXPECT_EQ(ReverseBits(six), 128u);
    EXPECT_EQ(ReverseBits("a." + six), 0u);
    EXPECT_TRUE(IsReverseName(six));
    EXPECT_FALSE(IsReverseName("evilin-addr.arpa"));
}

}  // namespace
}  // namespace stockade::dns
