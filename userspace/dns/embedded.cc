#include "userspace/dns/embedded.h"

// The assembler takes the files in: half a megabyte as a C++ array costs the compiler seconds.
// SK_DNS_DATA is the directory of the files (CMakeLists.txt).
#define EMBED(symbol, file)                 \
    __asm__(                                \
        ".pushsection .rodata\n"            \
        ".global " #symbol "\n" #symbol     \
        ":\n"                               \
        ".incbin \"" SK_DNS_DATA "/" file   \
        "\"\n"                              \
        ".global " #symbol "_end\n" #symbol \
        "_end:\n"                           \
        ".byte 0\n"                         \
        ".popsection\n");                   \
    extern "C" const char symbol[], symbol##_end[]

EMBED(sk_dns_suffix_list, "public_suffix_list.dat");
EMBED(sk_dns_model, "dns_model.txt");
EMBED(sk_dns_providers, "provider_zones.txt");
EMBED(sk_dns_reserved, "reserved_zones.txt");
EMBED(sk_dns_ranked, "ranked_zones.txt");

namespace stockade::dns {
namespace {
absl::string_view Between(const char* begin, const char* end) {
    return {begin, static_cast<size_t>(end - begin)};
}
}  // namespace

absl::string_view EmbeddedSuffixList() { return Between(sk_dns_suffix_list, sk_dns_suffix_list_end); }
absl::string_view EmbeddedModel() { return Between(sk_dns_model, sk_dns_model_end); }
absl::string_view EmbeddedProviderZones() { return Between(sk_dns_providers, sk_dns_providers_end); }
absl::string_view EmbeddedReservedZones() { return Between(sk_dns_reserved, sk_dns_reserved_end); }
absl::string_view EmbeddedRankedZones() { return Between(sk_dns_ranked, sk_dns_ranked_end); }

}  // namespace stockade::dns
