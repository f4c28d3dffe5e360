// Any bytes as a policy file: no crash, no exception, and what parses without errors compiles or
// is refused with a sentence.
#include <cstdint>
#include <cstdlib>

#include "userspace/policy/compile.h"
#include "userspace/policy/lint.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"
#include "userspace/policy/testing_pairs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::policy;
    ParseResult parsed = ParseFiles({{"fuzz.yaml", std::string(reinterpret_cast<const char*>(data), size)}});
    for (const Diagnostic& diagnostic : parsed.diagnostics) (void)ToString(diagnostic);
    if (HasErrors(parsed.diagnostics)) return 0;
    PolicyLibrary library;
    std::vector<Diagnostic> diagnostics;
    std::vector<SandboxPolicy> documents = parsed.policies;
    library.Add(std::move(parsed.policies), diagnostics);
    for (const SandboxPolicy& document : documents) {
        std::optional<ResolvedPolicy> resolved = library.Resolve(document.name, diagnostics);
        if (!resolved) continue;
        (void)Lint(document, *resolved);
        (void)Compile(*resolved, TestKeys());  // may be too big; a crash is what is looked for
    }
    return 0;
}
