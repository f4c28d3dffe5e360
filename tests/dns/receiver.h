// For tests: a TCP port that keeps what comes, and says so when all of it has come.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "userspace/base/fd.h"

namespace stockade::tests {

class Receiver {
  public:
    static constexpr char kWord[] = "RECEIVED";  // sent back for each `expected` bytes

    // `listener` is a socket that listens.
    Receiver(Fd listener, size_t expected);
    ~Receiver();

    // What came over any connection since the last call, one after the other.
    std::string Take();

  private:
    void Run();
    bool Read(int fd);

    const Fd listener_, stop_;
    const size_t expected_;
    std::map<int, size_t> came_;  // bytes by connection
    std::mutex mutex_;
    std::string bytes_;
    std::thread thread_;
};

}  // namespace stockade::tests
