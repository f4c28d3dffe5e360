#include "userspace/kernel/ring_reader.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"

namespace stockade::kernel {
namespace {

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Both words are written by one side and read by the other.
uint64_t Load(const unsigned long* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

}  // namespace

// A ring's file: a page with the reader's position, one with the kernel's, then the data twice
// (kernel/bpf/ringbuf.c).
StatusOr<RingReader::Source> RingReader::Map(Ring ring, int fd) {
    bpf_map_info info{};
    uint32_t size = sizeof(info);
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_get_info_by_fd(fd, &info, &size), "look at a ring"));
    if (info.type != BPF_MAP_TYPE_RINGBUF) return absl::InvalidArgumentError("the map is no ring");
    Source source{.ring = ring, .fd = fd, .bytes = info.max_entries};
    const size_t page = PageBytes();
    void* consumer = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (consumer == MAP_FAILED) return ErrnoStatus(errno, "map a ring's position");
    source.consumer = static_cast<unsigned long*>(consumer);
    void* rest = mmap(nullptr, page + 2 * source.bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(page));
    if (rest == MAP_FAILED) {
        const Status status = ErrnoStatus(errno, "map a ring");
        (void)munmap(consumer, page);
        return status;
    }
    source.producer = static_cast<const unsigned long*>(rest);
    source.data = static_cast<const uint8_t*>(rest) + page;
    source.handed = source.released = Load(source.consumer);
    return source;
}

StatusOr<std::unique_ptr<RingReader>> RingReader::Create(const std::array<int, kRings>& maps) {
    std::unique_ptr<RingReader> reader(new RingReader());
    reader->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!reader->wake_.ok()) return ErrnoStatus(errno, "make an eventfd");
    for (size_t i = 0; i < maps.size(); i++) {
        SK_ASSIGN_OR_RETURN(reader->sources_[i], Map(static_cast<Ring>(i), maps[i]));
    }
    return reader;
}

RingReader::~RingReader() {
    const size_t page = PageBytes();
    for (const Source& source : sources_) {
        if (!source.consumer) continue;
        (void)munmap(source.consumer, page);
        (void)munmap(const_cast<unsigned long*>(source.producer), page + 2 * source.bytes);
    }
}

StatusOr<int> RingReader::Read(Source& source, const Sensor::RecordFn& fn) {
    int count = 0;
    const uint64_t produced = Load(source.producer);
    while (source.handed < produced) {
        const uint8_t* head = source.data + (source.handed & (source.bytes - 1));
        // Still being written: it and all behind it wait.
        const uint32_t word = __atomic_load_n(reinterpret_cast<const uint32_t*>(head), __ATOMIC_ACQUIRE);
        if (word & BPF_RINGBUF_BUSY_BIT) break;
        const uint64_t length = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
        const uint64_t step = (length + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
        if (step > produced - source.handed) {
            return absl::DataLossError(absl::StrCat("a ring holds a record of ", length, " bytes, which it cannot"));
        }
        if (!(word & BPF_RINGBUF_DISCARD_BIT)) {
            fn(source.ring, {head + BPF_RINGBUF_HDR_SZ, length});
            ++count;
        }
        source.handed += step;
    }
    return count;
}

StatusOr<int> RingReader::Poll(int timeout_ms, const Sensor::RecordFn& fn) {
    for (bool waited = false;; waited = true) {
        int count = 0;
        pollfd waiting[kRings + 1];
        waiting[kRings] = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
        for (size_t i = 0; i < sources_.size(); i++) {
            SK_ASSIGN_OR_RETURN(const int read, Read(sources_[i], fn));
            count += read;
            // One with records that wait to be released, or that are still being written, is always readable.
            const bool released = sources_[i].released == sources_[i].handed && Load(sources_[i].producer) == sources_[i].handed;
            waiting[i] = {.fd = released ? sources_[i].fd : -1, .events = POLLIN, .revents = 0};
            if (!released) timeout_ms = timeout_ms < 0 ? kUnreleasedPollMs : std::min(timeout_ms, kUnreleasedPollMs);
        }
        if (count > 0 || waited || timeout_ms == 0) return count;
        if (poll(waiting, kRings + 1, timeout_ms) < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for the rings");
        uint64_t wakes = 0;
        (void)!read(wake_.get(), &wakes, sizeof(wakes));  // EAGAIN = it was something else
    }
}

void RingReader::Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));  // full = awake already
}

RingPosition RingReader::Handed() const {
    RingPosition position{};
    for (size_t i = 0; i < sources_.size(); i++) position[i] = sources_[i].handed;
    return position;
}

void RingReader::Release(const RingPosition& upto) {
    for (size_t i = 0; i < sources_.size(); i++) {
        Source& source = sources_[i];
        if (upto[i] <= source.released || upto[i] > source.handed) continue;
        source.released = upto[i];
        __atomic_store_n(source.consumer, source.released, __ATOMIC_RELEASE);
    }
}

bool RingReader::HalfHeld() const {
    return std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
        return source.handed - source.released > source.bytes / 2;
    });
}

}  // namespace stockade::kernel
