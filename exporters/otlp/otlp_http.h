// One request after the other to one URL, on a connection that is kept.
//
//   SK_ASSIGN_OR_RETURN(auto http, OtlpHttp::Create(options));
//   SK_RETURN_IF_ERROR(http->Post(body));
//   while (!(answer = http->Poll(20))) ...
//
// One thread. What a receiver says is bounded: 64 KiB of an answer are read, and 16 KiB of its head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exporters/otlp/otlp_options.h"

namespace stockade::exporters {

struct HttpAnswer {
    long status = 0;  // 0 = there was none; `error` says why
    std::string error;
    std::string body;
    bool may_have_arrived = true;  // false: the request did not leave
    int64_t retry_after_ms = -1;   // as the receiver asks; -1 = it does not
};

class OtlpHttp {
  public:
    static StatusOr<std::unique_ptr<OtlpHttp>> Create(const OtlpOptions& options);
    ~OtlpHttp();

    // kFailedPrecondition while one is under way.
    Status Post(std::string body);
    bool busy() const { return busy_; }
    // Waits so long for the answer.
    std::optional<HttpAnswer> Poll(int timeout_ms);
    // Gives up the one that is under way.
    void Abort();

  private:
    struct Parts;
    explicit OtlpHttp(std::unique_ptr<Parts> parts);
    HttpAnswer Finish(int code);

    std::unique_ptr<Parts> parts_;
    bool busy_ = false;
};

}  // namespace stockade::exporters
