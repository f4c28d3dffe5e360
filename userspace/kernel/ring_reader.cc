#include "userspace/kernel/ring_reader.h"

#include <bpf/libbpf.h>

#include "userspace/base/errno.h"

namespace stockade::kernel {

StatusOr<std::unique_ptr<RingReader>> RingReader::Create(const std::vector<std::pair<Ring, int>>& maps) {
    std::unique_ptr<RingReader> reader(new RingReader());
    for (const auto& [ring, fd] : maps) {
        auto source = std::make_unique<Source>(Source{reader.get(), ring});
        if (!reader->rings_) {
            reader->rings_ = ring_buffer__new(fd, OnRecord, source.get(), nullptr);
            if (!reader->rings_) return ErrnoStatus(errno, "map a ring");
        } else {
            SK_RETURN_IF_ERROR(NegErrnoStatus(ring_buffer__add(reader->rings_, fd, OnRecord, source.get()), "map a ring"));
        }
        reader->sources_.push_back(std::move(source));
    }
    return reader;
}

RingReader::~RingReader() { ring_buffer__free(rings_); }

// A negative result would skip the rest of the batch: always 0.
int RingReader::OnRecord(void* source, void* data, size_t size) {
    auto* from = static_cast<Source*>(source);
    (*from->reader->fn_)(from->ring, {static_cast<const uint8_t*>(data), size});
    return 0;
}

StatusOr<int> RingReader::Poll(int timeout_ms, const Sensor::RecordFn& fn) {
    fn_ = &fn;
    int count = ring_buffer__poll(rings_, timeout_ms);
    fn_ = nullptr;
    if (count == -EINTR) return 0;
    if (count < 0) return NegErrnoStatus(count, "read the rings");
    return count;
}

}  // namespace stockade::kernel
