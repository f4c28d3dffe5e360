#include "userspace/cmd/gzip_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {

StatusOr<std::unique_ptr<GzipSource>> GzipSource::Open(const std::string& path) {
    Fd fd;
    if (path == "-") {
        SK_ASSIGN_OR_RETURN(fd, Fd::Dup(STDIN_FILENO));
    } else {
        SK_ASSIGN_OR_RETURN(fd, Fd::Open(path, O_RDONLY));
    }
    struct stat info{};
    if (fstat(fd.get(), &info) == 0 && S_ISDIR(info.st_mode))
        return absl::InvalidArgumentError(
            absl::StrCat(path, " is a directory: give the files in it one by one"));
    gzFile file = gzdopen(fd.get(), "rb");
    if (file == nullptr) return absl::ResourceExhaustedError("no memory to read with");
    (void)fd.Release();  // gzclose closes it
    return std::unique_ptr<GzipSource>(new GzipSource(file));
}

GzipSource::~GzipSource() { gzclose(file_); }

StatusOr<size_t> GzipSource::Read(char* out, size_t want) {
    const int got = gzread(file_, out, static_cast<unsigned>(want));
    int code = Z_OK;
    const char* const text = gzerror(file_, &code);
    // A stream that ends early gives its bytes first and Z_BUF_ERROR with them.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
        return absl::DataLossError(absl::StrCat("gzip: ", text));
    return static_cast<size_t>(got);
}

}  // namespace stockade::cmd
