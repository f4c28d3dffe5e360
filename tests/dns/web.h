// For tests: as much of an HTTP server as real clients need to fetch files. One request a connection.
#pragma once

#include <mutex>
#include <string>
#include <thread>

#include "userspace/base/fd.h"

namespace stockade::tests {

class Web {
  public:
    explicit Web(Fd listener);
    ~Web();
    Web(const Web&) = delete;
    Web& operator=(const Web&) = delete;

    // From here on "/a" is the file <directory>/a; "/" says hello.
    void Publish(const std::string& directory);

  private:
    void Serve();
    std::string Answer(const std::string& request);

    Fd listener_, stop_;
    std::mutex mutex_;
    std::string directory_;
    std::thread thread_;
};

}  // namespace stockade::tests
