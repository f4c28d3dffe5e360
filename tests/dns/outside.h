// For tests: a network namespace behind a link of this one's, with processes and sockets of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/tools/product.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::tests {

class Outside {
  public:
    static constexpr char kAddress[] = "198.51.100.2";
    static constexpr char kHost[] = "198.51.100.1";  // this end of the link

    // It has all addresses from kAddress on.
    static constexpr int kFirstHost = 2, kLastHost = 254;
    static std::string Host(int last_byte) { return "198.51.100." + std::to_string(last_byte); }

    static StatusOr<std::unique_ptr<Outside>> Create();
    // Ends what was started in it.
    ~Outside();

    // On a thread that is in it: sockets that `fn` makes belong to it, wherever they are used.
    Status Inside(const std::function<Status()>& fn) const;
    // In a child, before exec. Holds a path: the child has closed our descriptors.
    std::function<void()> Entry() const;
    pid_t Start(const std::vector<std::string>& argv, const std::string& log);

  private:
    Outside() = default;
    Status MakeLink();

    Fd ns_;
    std::vector<pid_t> started_;
};

// A socket of this type (SOCK_DGRAM or SOCK_STREAM, which listens) in the namespace of the calling thread.
StatusOr<Fd> BoundTo(const std::string& address, int port, int type);

}  // namespace stockade::tests
