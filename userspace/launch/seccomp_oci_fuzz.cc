// Any bytes as --seccomp FILE: no crash, and what is taken is a filter that the kernel could take.
// BUILT_FROM seccomp_oci.cc json_syntax.cc seccomp.cc seccomp_floor.cc
#include <linux/bpf_common.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "userspace/launch/json_syntax.h"
#include "userspace/launch/seccomp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::launch;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto program = OciProfile(text);
    if (!program.ok()) {
        if (program.status().message().empty()) abort();
        return 0;
    }
    // The syntax check stands before protobuf's reader, which takes more than JSON.
    if (!CheckJsonSyntax(text).ok()) abort();
    if (program->empty() || program->size() > BPF_MAXINSNS) abort();
    if (BPF_CLASS(program->back().code) != BPF_RET) abort();
    return 0;
}
