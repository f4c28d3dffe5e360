// For tests: a world outside behind a link of its own, with a server that says "hello", a name server for it, and a
// web server at each of its addresses.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/dns/outside.h"
#include "tests/dns/web.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::tests {

class World {
  public:
    static constexpr const char* kOutside = Outside::kAddress;
    static constexpr int kPort = 8080, kOtherPort = 8081;  // of kOutside
    static constexpr char kResolver[] = "127.0.0.77";      // port 53; the same server is at kOutside

    // All of 198.51.100.2 to .254, where port 80 is the web server's.
    static constexpr int kFirstHost = Outside::kFirstHost, kLastHost = Outside::kLastHost;
    static std::string Host(int last_byte) { return Outside::Host(last_byte); }

    World();
    ~World();
    const Status& status() const { return status_; }

    // From here on the name has this IPv4 address; names without one do not exist.
    void Answer(const std::string& name, const std::string& address, uint32_t ttl_s = 60);
    // And this TXT record.
    void Text(const std::string& name, const std::string& text);
    // For servers of the test's own.
    Outside& outside() { return *outside_; }
    // What the web server gives: files below this directory.
    void Publish(const std::string& directory) { web_->Publish(directory); }
    struct Query {
        std::string name;  // as it came
        uint16_t type;
    };
    // What the name server was asked since the last call, in the order it came.
    std::vector<Query> TakeQueries();
    std::vector<std::string> TakeNames();
    // Called for each, on a thread of ours, before it is answered.
    void OnQuery(std::function<void(const Query&)> fn);

    struct Address {
        std::string text;
        uint32_t ttl_s = 0;
    };

  private:
    Status Start();
    void ServeHello();
    void ServeNames();
    void ServeOne(int fd);

    Status status_;
    std::unique_ptr<Outside> outside_;
    Fd stop_, names_fds_[2];
    std::vector<Fd> hello_;
    std::unique_ptr<Web> web_;
    std::thread hello_thread_, names_thread_;
    std::mutex mutex_;
    std::map<std::string, Address> addresses_;
    std::map<std::string, std::string> texts_;
    std::vector<Query> queries_;
    std::function<void(const Query&)> on_query_;
};

}  // namespace stockade::tests
