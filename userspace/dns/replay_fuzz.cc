// Any bytes as a capture, a log or a list of names: no crash, and rows within their budgets.
#include <cstdlib>

#include "userspace/dns/knowledge.h"
#include "userspace/dns/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::dns;
    static const auto* const knowledge = new Knowledge(*MakeKnowledge({}));
    MemorySource source(absl::string_view(reinterpret_cast<const char*>(data), size));
    Replay replay(*knowledge, {});
    (void)replay.Read(source);
    for (const auto& [key, row] : replay.rows()) {
        if (row.let_through + row.not_canonical > row.queries) abort();
    }
    if (replay.largest_state_bytes() > kMaxStateBytes) abort();
    return 0;
}
