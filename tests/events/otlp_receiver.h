// A receiver of OTLP over HTTP whose moods a test decides: on loopback, one thread, any number of connections.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exporters/otlp/otlp.pb.h"
#include "userspace/base/fd.h"

namespace stockade::testing_events {

class OtlpReceiver {
  public:
    struct Reply {
        int status = 200;
        std::string headers{};  // whole lines, each with its end
        std::string body{};
        bool takes = true;    // what is left in the request is kept
        bool silent = false;  // the connection is closed instead of an answer; what was taken stays taken
        bool hangs = false;   // nor that: there is no answer, ever
    };
    // On the receiver's thread. May remove from the request what it refuses.
    using Answer = std::function<Reply(otlp::Request* request, const std::string& head)>;

    explicit OtlpReceiver(int port = 0);
    ~OtlpReceiver();
    void SetAnswer(Answer answer);
    // As a process that is gone: nobody listens at the port any more, and connections end.
    void GoAway();
    void ComeBack();

    int port() const { return port_; }
    std::string url() const;
    std::vector<otlp::LogRecord> records() const;
    std::vector<size_t> requests() const;  // records of each request that came

  private:
    void Serve();
    // False when the connection is to be closed.
    bool ServeOne(int fd);

    int port_;
    Fd listen_;
    Fd wake_;
    std::thread thread_;
    mutable std::mutex mutex_;
    Answer answer_;
    std::vector<otlp::LogRecord> records_;
    std::vector<size_t> requests_;
};

}  // namespace stockade::testing_events
