// For tests: a world outside behind a link of its own, with a server that says "hello", and a name server for it.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::tests {

class World {
  public:
    static constexpr char kOutside[] = "198.51.100.2";
    static constexpr char kHost[] = "198.51.100.1";
    static constexpr int kPort = 8080, kOtherPort = 8081;  // of kOutside
    static constexpr char kResolver[] = "127.0.0.77";      // port 53

    World();
    ~World();
    const Status& status() const { return status_; }

    // From here on the name has this IPv4 address, for 60 s; names without one do not exist.
    void Answer(const std::string& name, const std::string& address);
    // And this TXT record.
    void Text(const std::string& name, const std::string& text);
    // Names that the name server was asked for since the last call, in the order they came.
    std::vector<std::string> TakeNames();

  private:
    Status Start();
    Status MakeLink();
    void ServeHello();
    void ServeNames();

    Status status_;
    Fd stop_, names_fd_;
    std::vector<Fd> hello_;
    std::thread hello_thread_, names_thread_;
    std::mutex mutex_;
    std::map<std::string, std::string> addresses_, texts_;
    std::vector<std::string> names_;
};

}  // namespace stockade::tests
