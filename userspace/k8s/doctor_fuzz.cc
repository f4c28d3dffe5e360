// Any bytes as manifests or as kubectl's JSON: an error in a sentence, or findings that have all their parts.
#include <cstdint>
#include <cstdlib>

#include "userspace/k8s/doctor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::k8s;
    ObjectSet set;
    const stockade::Status status = ReadObjects("fuzz", std::string(reinterpret_cast<const char*>(data), size), &set);
    if (!status.ok()) {
        if (status.message().empty()) std::abort();
        return 0;
    }
    for (const Finding& finding : Diagnose(set, 1'800'000'000).findings) {
        if (finding.check.empty() || finding.object.empty() || finding.what.empty()) std::abort();
    }
    return 0;
}
