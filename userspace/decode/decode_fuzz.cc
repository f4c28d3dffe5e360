// Any bytes: no crash, and an event, if one comes, prints clean and can be read back.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "userspace/decode/test_records.h"
#include "userspace/model/json.h"
#include "userspace/model/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade;
    static auto* const decoder = new decode::Decoder({.node = "n", .lookup = decode::TestLookup()});
    std::vector<uint8_t> record(data, data + size);
    if (size > sizeof(sk_head) && (data[0] & 1)) {
        // Past the head's checks, so that the payloads get their share.
        sk_head head;
        memcpy(&head, record.data(), sizeof(head));
        head.kind = static_cast<uint16_t>(1 + head.kind % 8);
        head.abi = SK_RECORD_ABI;
        head.verdict %= 5, head.outcome %= 4, head.lock %= 6, head.section %= 6, head.code %= 4;
        constexpr uint16_t kSizes[] = {0,
#define X(number, NAME, stem) sizeof(sk_##stem),
                                       SK_KINDS(X)
#undef X
        };
        head.bytes = kSizes[head.kind];
        record.resize(std::max<size_t>(record.size(), head.bytes));
        memcpy(record.data(), &head, sizeof(head));
    }
    v1::Event event;
    if (!decoder->Decode(record, &event).ok()) return 0;
    const std::string line = model::ToJsonLine(event);
    if (!model::IsPrintable(line) || !model::FromJsonLine(line).ok()) abort();
    return 0;
}
