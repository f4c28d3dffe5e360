// An owned file descriptor.
#pragma once

#include <string>
#include <utility>

#include "userspace/base/status.h"

namespace stockade {

// Closes its descriptor when it dies. Move-only. Not for descriptors that libbpf owns: dup
// those first with Fd::Dup.
//
//   SK_ASSIGN_OR_RETURN(Fd dir, Fd::Open("/run/stockade", O_PATH | O_DIRECTORY));
//   openat(dir.get(), ...);
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) Reset(std::exchange(other.fd_, -1));
        return *this;
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() { Reset(); }

    // open(2) with O_CLOEXEC added; `mode` matters with O_CREAT only.
    static StatusOr<Fd> Open(const std::string& path, int flags, unsigned mode = 0);
    static StatusOr<Fd> OpenAt(const Fd& dir, const std::string& path, int flags, unsigned mode = 0);
    // A close-on-exec duplicate of a descriptor that somebody else owns.
    static StatusOr<Fd> Dup(int borrowed);

    int get() const { return fd_; }
    bool ok() const { return fd_ >= 0; }
    // Gives the descriptor away; the caller closes it.
    [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
    void Reset(int fd = -1);

  private:
    int fd_ = -1;
};

// Puts /dev/null on those of the descriptors 0, 1 and 2 that whoever started us left closed: what is opened next would
// get their numbers, and be read and written as a standard stream. First thing in main(); false = there is no /dev/null.
bool FillStandardStreams();
// Reads until end of file. kResourceExhausted when more than `max_bytes` come.
StatusOr<std::string> ReadAll(int fd, size_t max_bytes);
// Writes everything, through short writes and EINTR, and waits where the descriptor would not (EAGAIN).
Status WriteAll(int fd, absl::string_view bytes);
// A new file in the place of what is there, by one rename. kNo: for what is gone after a reboot anyway.
enum class Synced { kNo, kYes };
Status ReplaceFile(const std::string& path, absl::string_view bytes, unsigned mode, Synced synced = Synced::kNo);
StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace stockade
