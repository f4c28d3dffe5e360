// For triggers: one io_uring without liburing, one operation at a time.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace stockade::triggers {

class Uring {
  public:
    // False with errno set.
    bool Start(unsigned flags) {
        params_.flags = flags;
        fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 4, &params_));
        if (fd_ < 0) return false;
        sq_ = Map(params_.sq_off.array + params_.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
        cq_ = Map(params_.cq_off.cqes + params_.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
        sqes_ = reinterpret_cast<io_uring_sqe*>(Map(params_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
        return sq_ != MAP_FAILED && cq_ != MAP_FAILED && sqes_ != MAP_FAILED;
    }

    // The operation's result, or -errno of io_uring_enter.
    int Submit(const io_uring_sqe& sqe) {
        unsigned tail = Word(sq_, params_.sq_off.tail)->load();
        unsigned index = tail & Word(sq_, params_.sq_off.ring_mask)->load();
        sqes_[index] = sqe;
        Word(sq_, params_.sq_off.array + index * sizeof(unsigned))->store(index);
        Word(sq_, params_.sq_off.tail)->store(tail + 1);
        if (syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) return -errno;
        unsigned head = Word(cq_, params_.cq_off.head)->load();
        auto* cqes = reinterpret_cast<io_uring_cqe*>(cq_ + params_.cq_off.cqes);
        int result = cqes[head & Word(cq_, params_.cq_off.ring_mask)->load()].res;
        Word(cq_, params_.cq_off.head)->store(head + 1);
        return result;
    }

  private:
    char* Map(size_t size, off_t offset) {
        return static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset));
    }
    static std::atomic<unsigned>* Word(char* base, size_t offset) { return reinterpret_cast<std::atomic<unsigned>*>(base + offset); }

    io_uring_params params_{};
    int fd_ = -1;
    char* sq_ = nullptr;
    char* cq_ = nullptr;
    io_uring_sqe* sqes_ = nullptr;
};

}  // namespace stockade::triggers
