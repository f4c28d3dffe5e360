// The file of --result. From the moment that it is open it holds a record, so that neither an
// earlier run's end nor nothing at all can be taken for this one's.
#pragma once

#include <string>

#include "userspace/api/frame.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {

class ResultFile {
  public:
    ResultFile() = default;
    // Never waits: a FIFO that nobody reads is an error. The file says `"end":"unfinished"` then.
    // An empty path is no file, and Write does nothing.
    static StatusOr<ResultFile> Open(const std::string& path);
    Status Write(const api::RunResult& result);
    // A run that did not come to be: {"end":"failed","exit_code":125,"reason":...}; "refused", with its code, where its contract or an
    // approval says so. `contract` may be null.
    Status WriteFailed(const Status& why, const api::ContractReport* contract = nullptr);

  private:
    Status Replace(const std::string& text);

    std::string path_;
    Fd fd_;
    bool rewritable_ = false;  // a regular file; a pipe gets the end alone
};

}  // namespace stockade::cmd
