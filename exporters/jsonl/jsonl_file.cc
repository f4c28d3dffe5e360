#include "exporters/jsonl/jsonl_file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporters/format/format.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::exporters {
namespace {

// Of lines between two writes; beyond it Send says to Poll first.
constexpr size_t kMaxBufferBytes = 1 << 20;
// A reader of a pipe that takes nothing for so long is told as a failure; the lines stay in the spool.
constexpr int kStuckMs = 1000;
// Half a line is no longer than a record of the spool, as JSON.
// While lines keep coming a sync waits for more of them, so long or so many bytes.
constexpr uint64_t kSyncNs = 50'000'000;
constexpr size_t kSyncBytes = 4 << 20;
constexpr off_t kMaxHalfLine = 32 << 20;
constexpr uint64_t kRotateBytes = 100 << 20;
constexpr uint64_t kRotateKeep = 5;
constexpr uint64_t kMaxRotateKeep = 1000;

struct JsonlFileOptions {
    std::string path;
    Format format = Format::kNative;
    uint64_t rotate_bytes = kRotateBytes;
    uint64_t rotate_keep = kRotateKeep;
    std::function<int(int fd)> sync;
};

class JsonlFile : public SpooledExporter {
  public:
    explicit JsonlFile(JsonlFileOptions options) : options_(std::move(options)) {}
    ~JsonlFile() override = default;

    std::string name() const override { return absl::StrCat("jsonl:", options_.path); }
    void OnDelivered(Delivered delivered) override { delivered_ = std::move(delivered); }

    Status Send(uint64_t tag, const model::EventBytes& event, bool) override {
        if (buffer_.size() >= kMaxBufferBytes) return absl::UnavailableError("the buffer is full");
        const size_t start = buffer_.size();
        SK_RETURN_IF_ERROR(AppendAs(options_.format, event, &buffer_));
        buffer_.push_back('\n');
        lines_.push_back({tag, buffer_.size(), buffer_.size() - start});
        std::lock_guard lock(mutex_);
        ++counters_.accepted;
        return absl::OkStatus();
    }

    // `timeout_ms` 0: more comes at once.
    void Poll(int timeout_ms) override {
        if (!lines_.empty()) {
            if (const Status status = Write(); !status.ok() || !regular_) return Finish(status);
            written_lines_.insert(written_lines_.end(), lines_.begin(), lines_.end());
            lines_.clear();
            buffer_.clear();
        }
        if (written_lines_.empty()) {
            (void)poll(nullptr, 0, timeout_ms);  // there is nothing to wait for but time
        } else if (timeout_ms > 0 || bytes_ - synced_ >= kSyncBytes || BootNow() - synced_ns_ >= kSyncNs) {
            FinishSynced(Sync());
        }
    }

    Status Health() const override {
        std::lock_guard lock(mutex_);
        return health_;
    }

    void Close(int) override {
        Poll(1);
        if (!written_lines_.empty()) FinishSynced(Sync());  // of before a write that failed
        fd_.Reset();
    }

    ExporterCounters counters() const override {
        std::lock_guard lock(mutex_);
        return counters_;
    }

  private:
    struct Line {
        uint64_t tag;
        size_t end;  // in buffer_
        size_t bytes;
    };

    Status Write() {
        written_ = 0;
        SK_RETURN_IF_ERROR(EnsureOpen());
        if (regular_ && options_.rotate_bytes > 0 && bytes_ > 0 &&
            bytes_ + buffer_.size() > options_.rotate_bytes) {
            SK_RETURN_IF_ERROR(Rotate());
            SK_RETURN_IF_ERROR(EnsureOpen());
        }
        if (torn_) SK_RETURN_IF_ERROR(WriteBytes("\n", nullptr));
        torn_ = false;
        const Status status = WriteBytes(buffer_, &written_);
        if (status.ok()) {
            bytes_ += buffer_.size();
        } else if (regular_) {
            TakeBack(bytes_);
            written_ = 0;
        }
        return status;
    }

    // All or nothing: what comes again must not stand behind itself, or half of itself.
    void TakeBack(uint64_t to) {
        if (!fd_.ok()) return;
        if (ftruncate(fd_.get(), static_cast<off_t>(to)) != 0) fd_.Reset();  // healed when it is opened
        bytes_ = to;
    }

    Status Sync() {
        synced_ns_ = BootNow();
        if (!fd_.ok()) return absl::UnavailableError(absl::StrCat("sync ", options_.path, ": it is closed"));
        if (options_.sync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", options_.path));
        if (made_) {
            const size_t slash = options_.path.rfind('/');
            SK_ASSIGN_OR_RETURN(const Fd folder, Fd::Open(options_.path.substr(0, slash + 1), O_RDONLY | O_DIRECTORY));
            if (fsync(folder.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync the folder of ", options_.path));
            made_ = false;
        }
        synced_ = bytes_;
        return absl::OkStatus();
    }

    void FinishSynced(const Status& status) {
        std::vector<Line> lines;
        lines.swap(written_lines_);
        if (!status.ok()) TakeBack(synced_);
        {
            std::lock_guard lock(mutex_);
            health_ = status;
            if (status.ok()) counters_.delivered += lines.size();
            for (const Line& line : lines) counters_.bytes += status.ok() ? line.bytes : 0;
        }
        for (const Line& line : lines)
            delivered_(line.tag, status.ok() ? status : absl::UnavailableError(status.message()));
    }

    Status WriteBytes(absl::string_view bytes, size_t* written) {
        size_t done = 0;
        while (done < bytes.size()) {
            // No more than a pipe takes at once after it said so: this thread must stay able to end.
            const size_t some = std::min<size_t>(bytes.size() - done, regular_ ? kMaxBufferBytes : PIPE_BUF);
            pollfd poller{fd_.get(), POLLOUT, 0};
            if (!regular_ && poll(&poller, 1, kStuckMs) == 0)
                return absl::UnavailableError(absl::StrCat("write ", options_.path, ": nobody reads it"));
            const ssize_t wrote = write(fd_.get(), bytes.data() + done, some);
            if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
                const Status status = ErrnoStatus(errno, absl::StrCat("write ", options_.path));
                if (!regular_ && options_.path != "-") fd_.Reset();  // a FIFO's next reader
                return status;
            }
            if (wrote > 0) done += static_cast<size_t>(wrote);
            if (written) *written = done;
        }
        return absl::OkStatus();
    }

    // Tells of each line. Those that are whole in a pipe are delivered, whatever came behind them.
    void Finish(const Status& status) {
        std::vector<Line> lines;
        lines.swap(lines_);
        buffer_.clear();
        size_t whole = 0;
        uint64_t count = 0;
        for (const Line& line : lines) {
            if (status.ok() || line.end <= written_) whole = line.end, ++count;
        }
        torn_ = !status.ok() && written_ > whole;
        {
            std::lock_guard lock(mutex_);
            health_ = status;
            counters_.delivered += count;
            counters_.bytes += whole;
        }
        for (const Line& line : lines)
            delivered_(line.tag, line.end <= whole ? absl::OkStatus()
                                                   : absl::UnavailableError(status.message()));
    }

    Status EnsureOpen() {
        struct stat st{}, named{};
        if (fd_.ok() && !regular_) return absl::OkStatus();
        if (fd_.ok() && stat(options_.path.c_str(), &named) == 0 && fstat(fd_.get(), &st) == 0 &&
            st.st_ino == named.st_ino && st.st_dev == named.st_dev) {
            return absl::OkStatus();
        }
        // Renamed by somebody: what is in it is synced where it is.
        if (fd_.ok() && !written_lines_.empty()) FinishSynced(Sync());
        if (options_.path == "-") {
            SK_ASSIGN_OR_RETURN(fd_, Fd::Dup(STDOUT_FILENO));
            return absl::OkStatus();  // whoever gave it to us may share it: nothing is cut or renamed
        }
        // Non-blocking and to write alone: a FIFO without a reader is an error then, and tried again.
        const bool other = stat(options_.path.c_str(), &named) == 0 && !S_ISREG(named.st_mode);
        const int flags = other ? O_WRONLY : O_RDWR | O_CREAT | O_APPEND;
        auto fd = Fd::Open(options_.path, flags | O_NOCTTY | O_NONBLOCK, 0600);
        if (!fd.ok()) return fd.status();
        fd_ = *std::move(fd);
        if (fstat(fd_.get(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", options_.path));
        regular_ = S_ISREG(st.st_mode);
        bytes_ = static_cast<uint64_t>(st.st_size);
        made_ = bytes_ == 0;
        if (regular_) SK_RETURN_IF_ERROR(CutHalfLine());
        synced_ = bytes_;
        return absl::OkStatus();
    }

    Status CutHalfLine() {
        char chunk[4096];
        off_t end = static_cast<off_t>(bytes_);
        const off_t stop = std::max<off_t>(0, end - kMaxHalfLine);
        while (end > stop) {
            const off_t from = std::max<off_t>(stop, end - static_cast<off_t>(sizeof(chunk)));
            const ssize_t got = pread(fd_.get(), chunk, static_cast<size_t>(end - from), from);
            if (got <= 0) return ErrnoStatus(errno, absl::StrCat("read ", options_.path));
            const auto* last = static_cast<const char*>(memrchr(chunk, '\n', static_cast<size_t>(got)));
            end = last ? from + (last - chunk) + 1 : from;
            if (last) break;
        }
        if (end == static_cast<off_t>(bytes_)) return absl::OkStatus();
        if (ftruncate(fd_.get(), end) != 0) return ErrnoStatus(errno, absl::StrCat("cut ", options_.path));
        bytes_ = static_cast<uint64_t>(end);
        return absl::OkStatus();
    }

    Status Rotate() {
        const auto at = [&](uint64_t number) { return absl::StrCat(options_.path, ".", number); };
        if (!written_lines_.empty()) FinishSynced(Sync());
        fd_.Reset();
        if (options_.rotate_keep == 0) (void)unlink(options_.path.c_str());  // made anew, or appended to
        for (uint64_t number = options_.rotate_keep; number > 0; --number) {
            const std::string from = number == 1 ? options_.path : at(number - 1);
            if (rename(from.c_str(), at(number).c_str()) != 0 && errno != ENOENT)
                return ErrnoStatus(errno, absl::StrCat("rename ", from));
        }
        return absl::OkStatus();
    }

    const JsonlFileOptions options_;
    Delivered delivered_;
    Fd fd_;
    bool regular_ = false;
    bool made_ = false;       // its name may not be on the disk
    uint64_t bytes_ = 0;      // of the regular file
    uint64_t synced_ = 0;     // of these, on the disk
    uint64_t synced_ns_ = 0;  // boot; the last sync
    std::vector<Line> written_lines_;  // of the regular file, and not synced
    std::string buffer_;
    std::vector<Line> lines_;
    size_t written_ = 0;  // of buffer_, by the last Write
    bool torn_ = false;   // the last line in the pipe has no end
    mutable std::mutex mutex_;
    Status health_;
    ExporterCounters counters_;
};

Status Wrong(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("exporter jsonl: ", what));
}

}  // namespace

std::vector<std::string> JsonlFileOptionNames() { return {"format", "path", "rotatebytes", "rotatekeep"}; }

StatusOr<std::unique_ptr<SpooledExporter>> MakeJsonlFile(const ExporterOptions& options) {
    return MakeJsonlFileSyncedBy(options, fdatasync);
}

StatusOr<std::unique_ptr<SpooledExporter>> MakeJsonlFileSyncedBy(const ExporterOptions& options,
                                                                 std::function<int(int fd)> sync) {
    JsonlFileOptions out;
    out.sync = std::move(sync);
    for (const auto& [key, value] : options) {
        if (key == "path") {
            out.path = value;
        } else if (key == "format") {
            SK_ASSIGN_OR_RETURN(out.format, FormatNamed(value));
        } else if (key == "rotatebytes") {
            if (!absl::SimpleAtoi(value, &out.rotate_bytes)) return Wrong("rotatebytes is a whole number");
        } else if (key == "rotatekeep") {
            if (!absl::SimpleAtoi(value, &out.rotate_keep) || out.rotate_keep > kMaxRotateKeep)
                return Wrong(absl::StrCat("rotatekeep is 0 to ", kMaxRotateKeep));
        } else {
            return Wrong(absl::StrCat("no option \"", key, "\"; there are ",
                                      absl::StrJoin(JsonlFileOptionNames(), ", ")));
        }
    }
    if (out.path != "-" && (out.path.empty() || out.path.front() != '/'))
        return Wrong("path is an absolute path, or -");
    return std::make_unique<JsonlFile>(std::move(out));
}

}  // namespace stockade::exporters
