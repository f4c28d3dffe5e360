// Any bytes as a contract, as a tool list and as a result: no crash, no exception; first contracts are contracts, and what was cleaned once
// stays as it is.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "userspace/contract/mcp.h"
#include "userspace/contract/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::contract;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const Parsed parsed = Parse("fuzz.yaml", text);
    for (const stockade::policy::Diagnostic& diagnostic : parsed.diagnostics) (void)ToString(diagnostic);
    if (const auto made = ContractsFromMcp(text); made.ok() && made->sandboxed + made->in_process > 0 && !Parse("made.yaml", made->yaml).diagnostics.empty()) abort();
    static const auto schema = ResultSchema::Create(
        R"({"type":["object","array","string","number","null","boolean"],"items":{"type":["integer","string"],"pattern":"a"},"properties":{"a":{"type":"object","additionalProperties":{"type":"string"}},"b":{"enum":[1,{"c":2}]}}})");
    if (!schema.ok()) abort();
    const auto clean = (*schema)->Clean(text, {});
    if (!clean.ok()) return 0;
    const auto again = (*schema)->Clean(*clean, {});
    if (!again.ok() || *again != *clean) abort();
    return 0;
}
