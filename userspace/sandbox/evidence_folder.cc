#include "userspace/sandbox/evidence_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "userspace/base/errno.h"
#include "userspace/model/json.h"

namespace stockade::sandbox {
namespace {

namespace fs = std::filesystem;

// %E4Y: %Y reads as many digits as there are.
constexpr char kTimeFormat[] = "%E4Y%m%dT%H%M%SZ";
constexpr size_t kTimeBytes = 16;  // of what that makes
constexpr absl::string_view kIdPrefix = "-sbx_";

// Of a folder's name; empty for what is no name of ours.
std::string IdOf(const std::string& name) {
    absl::Time time;
    if (name.size() <= kTimeBytes + kIdPrefix.size() || name.substr(kTimeBytes, kIdPrefix.size()) != kIdPrefix) return "";
    if (!absl::ParseTime(kTimeFormat, name.substr(0, kTimeBytes), &time, nullptr)) return "";
    return name.substr(kTimeBytes + 1);
}

// Oldest first: their names begin with the time.
std::vector<std::string> Folders(const std::string& base) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(base, error)) {
        std::error_code ignored;
        if (entry.is_directory(ignored) && !entry.is_symlink(ignored) && !IdOf(entry.path().filename()).empty()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
}

uint64_t BytesOf(const std::string& folder) {
    uint64_t bytes = 0;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
        std::error_code ignored;
        const uint64_t size = entry.is_regular_file(ignored) ? entry.file_size(ignored) : 0;
        if (!ignored) bytes += size;
    }
    return bytes;
}

std::string Json(absl::string_view text) {
    std::string out;
    model::AppendJsonString(text, &out);
    return out;
}

}  // namespace

StatusOr<std::unique_ptr<EvidenceFolder>> EvidenceFolder::Create(const std::string& base, const std::string& sandbox_id, uint64_t wall_ns) {
    const std::string time = absl::FormatTime(kTimeFormat, absl::FromUnixNanos(static_cast<int64_t>(wall_ns)), absl::UTCTimeZone());
    const std::string path = absl::StrCat(base, "/", time, "-", sandbox_id);
    if (mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(errno, absl::StrCat("make ", path));
    SK_ASSIGN_OR_RETURN(Fd dir, Fd::Open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return std::unique_ptr<EvidenceFolder>(new EvidenceFolder(path, std::move(dir)));
}

StatusOr<std::unique_ptr<EvidenceFolder>> EvidenceFolder::Reopen(const std::string& base, const std::string& sandbox_id) {
    for (const std::string& name : Folders(base)) {
        const std::string path = absl::StrCat(base, "/", name);
        if (IdOf(name) != sandbox_id || access(absl::StrCat(path, "/", kManifest).c_str(), F_OK) == 0) continue;
        SK_ASSIGN_OR_RETURN(Fd dir, Fd::Open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
        auto folder = std::unique_ptr<EvidenceFolder>(new EvidenceFolder(path, std::move(dir)));
        SK_RETURN_IF_ERROR(folder->ReadBack("", path));
        return folder;
    }
    return absl::NotFoundError(absl::StrCat("no open folder of ", sandbox_id));
}

// The digests of what is there, so that more can be added to them.
Status EvidenceFolder::ReadBack(const std::string& prefix, const std::string& path) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path, error)) {
        const std::string name = absl::StrCat(prefix, entry.path().filename().string());
        std::error_code ignored;
        if (entry.is_directory(ignored)) {
            SK_RETURN_IF_ERROR(ReadBack(name + "/", entry.path()));
            continue;
        }
        SK_ASSIGN_OR_RETURN(File * file, Open(name));
        SK_ASSIGN_OR_RETURN(const Fd old, Fd::Open(entry.path(), O_RDONLY | O_NOFOLLOW));
        char buffer[65536];
        for (ssize_t n; (n = read(old.get(), buffer, sizeof(buffer))) != 0;) {
            if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", name));
            file->digest.Add(absl::string_view(buffer, static_cast<size_t>(n)));
            file->bytes += static_cast<uint64_t>(n);
        }
    }
    return absl::OkStatus();
}

StatusOr<EvidenceFolder::File*> EvidenceFolder::Open(const std::string& name) {
    const auto found = files_.find(name);
    if (found != files_.end()) return &found->second;
    if (absl::StartsWith(name, "raw/") && mkdirat(dir_.get(), "raw", 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, "make raw/");
    File file;
    SK_ASSIGN_OR_RETURN(file.fd, Fd::OpenAt(dir_, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600));
    return &files_.emplace(name, std::move(file)).first->second;
}

void EvidenceFolder::Append(const std::string& name, absl::string_view bytes) {
    const StatusOr<File*> file = Open(name);
    Status status = file.status();
    if (status.ok()) status = WriteAll((*file)->fd.get(), bytes);
    if (status.ok()) {
        (*file)->digest.Add(bytes);
        (*file)->bytes += bytes.size();
        return;
    }
    lost_bytes_ += bytes.size();
    if (failed_.ok()) failed_ = Annotate(status, name);
    // A part of it may be there: the digest is that of what is.
    struct stat info{};
    if (file.ok() && fstat((*file)->fd.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) > (*file)->bytes)
        (void)!ftruncate((*file)->fd.get(), static_cast<off_t>((*file)->bytes));
}

StatusOr<std::string> EvidenceFolder::Finish(const std::map<std::string, std::string>& facts) {
    std::vector<std::string> rows;
    for (auto& [name, file] : files_) rows.push_back(absl::StrCat("{\"name\":", Json(name), ",\"bytes\":", file.bytes, ",\"sha256\":\"", file.digest.Hex(), "\"}"));
    std::string text = absl::StrCat("{\"version\":1,\"complete\":", failed_.ok() ? "true" : "false");
    if (!failed_.ok()) absl::StrAppend(&text, ",\"failed\":", Json(failed_.message()), ",\"lost_bytes\":", lost_bytes_);
    for (const auto& [key, value] : facts) absl::StrAppend(&text, ",", Json(key), ":", value);
    absl::StrAppend(&text, ",\"files\":[", absl::StrJoin(rows, ","), "]}\n");
    const Status written = ReplaceFile(absl::StrCat(path_, "/", kManifest), text, 0600);
    files_.clear();
    if (!written.ok()) return absl::DataLossError(absl::StrCat("evidence: ", written.message()));
    if (!failed_.ok()) return absl::DataLossError(absl::StrCat("evidence: ", failed_.message()));
    return Sha256Hex(text);
}

Swept SweepEvidence(const std::string& base, const Retention& retention, uint64_t wall_ns) {
    Swept out;
    struct Kept {
        std::string path;
        uint64_t bytes;
    };
    std::vector<Kept> kept;
    const auto remove = [&](const std::string& path) {
        std::error_code error;
        fs::remove_all(path, error);
        if (error) {
            out.failed.push_back(absl::StrCat(path, ": ", error.message()));
        } else {
            ++out.removed;
        }
        return !error;
    };
    for (const std::string& name : Folders(base)) {
        const std::string path = absl::StrCat(base, "/", name);
        if (access(absl::StrCat(path, "/", kManifest).c_str(), F_OK) != 0) continue;  // is being written
        absl::Time time;
        (void)absl::ParseTime(kTimeFormat, name.substr(0, kTimeBytes), &time, nullptr);  // IdOf has taken it
        const auto age = static_cast<int64_t>(wall_ns) - absl::ToUnixNanos(time);
        if (retention.max_age_ns != 0 && age > static_cast<int64_t>(retention.max_age_ns) && remove(path)) continue;
        kept.push_back({path, BytesOf(path)});
        out.bytes += kept.back().bytes;
    }
    for (const Kept& folder : kept) {
        if (retention.max_bytes == 0 || out.bytes <= retention.max_bytes || !remove(folder.path)) {
            ++out.folders;
        } else {
            out.bytes -= folder.bytes;
        }
    }
    return out;
}

int CloseUnfinished(const std::string& base, const std::vector<std::string>& alive) {
    int closed = 0;
    for (const std::string& name : Folders(base)) {
        const std::string id = IdOf(name);
        if (std::find(alive.begin(), alive.end(), id) != alive.end()) continue;
        auto folder = EvidenceFolder::Reopen(base, id);
        if (folder.ok() && (*folder)->Finish({{"interrupted", "true"}, {"sandbox", Json(id)}}).ok()) ++closed;
    }
    return closed;
}

}  // namespace stockade::sandbox
