#include "userspace/cmd/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/cmd/run_result.h"
#include "userspace/contract/refusal.h"

namespace stockade::cmd {

StatusOr<ResultFile> ResultFile::Open(const std::string& path) {
    ResultFile file;
    if (path.empty()) return file;
    if (path == "-") {
        return absl::InvalidArgumentError(
            "--result takes a file, not -: standard output is the command's own (/dev/fd/N is taken)");
    }
    file.path_ = path;
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENXIO) {
        return absl::UnavailableError(absl::StrCat(
            "--result: ", path, " is a FIFO that nobody reads (or a socket): start its reader first"));
    }
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("--result: open ", path));
    file.fd_ = Fd(fd);
    // Only the opening must not wait; what is written later may.
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    struct stat info{};
    file.rewritable_ = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (!file.rewritable_) return file;
    api::RunResult unfinished;
    unfinished.set_exit_code(125);
    unfinished.set_end("unfinished");
    unfinished.set_reason("the run has not ended yet, or its client was killed");
    SK_RETURN_IF_ERROR(file.Write(unfinished));
    return file;
}

Status ResultFile::Write(const api::RunResult& result) {
    return fd_.ok() ? Replace(ResultJson(result) + "\n") : absl::OkStatus();
}

Status ResultFile::WriteFailed(const Status& why, const api::ContractReport* contract) {
    api::RunResult failed;
    failed.set_exit_code(125);
    failed.set_end("failed");
    failed.set_reason(std::string(why.message()));
    if (const std::string code = contract::RefusalCode(why); !code.empty()) {
        failed.set_end("refused");
        failed.set_code(code);
    }
    if (contract != nullptr) *failed.mutable_contract() = *contract;
    return Write(failed);
}

Status ResultFile::Replace(const std::string& text) {
    if (rewritable_ && (ftruncate(fd_.get(), 0) != 0 || lseek(fd_.get(), 0, SEEK_SET) != 0)) {
        return ErrnoStatus(errno, absl::StrCat("--result: truncate ", path_));
    }
    return Annotate(WriteAll(fd_.get(), text), absl::StrCat("--result ", path_));
}

}  // namespace stockade::cmd
