#include "userspace/pipeline/spool_file.h"

#include <endian.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/crc32c.h"
#include "userspace/base/errno.h"

namespace stockade::pipeline {
namespace {

void Put32(uint32_t value, std::string* out) {
    value = htole32(value);
    out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void Put64(uint64_t value, std::string* out) {
    value = htole64(value);
    out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t Get32(absl::string_view data, size_t at) {
    uint32_t value;
    memcpy(&value, data.data() + at, sizeof(value));
    return le32toh(value);
}

uint64_t Get64(absl::string_view data, size_t at) {
    uint64_t value;
    memcpy(&value, data.data() + at, sizeof(value));
    return le64toh(value);
}

// kRecord, kTorn or kDamaged; does not move.
Parsed Look(absl::string_view data, size_t at, SpoolRecord* record, size_t* whole) {
    const absl::string_view left = data.substr(at);
    if (left.size() < 4) return Parsed::kTorn;
    if (Get32(left, 0) != kRecordMagic) return Parsed::kDamaged;
    if (left.size() < kRecordHead) return Parsed::kTorn;
    const size_t length = Get32(left, 16);
    if (length > kMaxRecordBytes) return Parsed::kDamaged;
    if (left.size() - kRecordHead < length) return Parsed::kTorn;
    *whole = kRecordHead + length;
    if (Crc32c(left.substr(8, *whole - 8)) != Get32(left, 4)) return Parsed::kDamaged;
    record->position = Get64(left, 8);
    record->lane = static_cast<uint8_t>(left[20]);
    record->payload = left.substr(kRecordHead, length);
    return Parsed::kRecord;
}

}  // namespace

// ErrnoStatus puts the name at the end.
bool IsDiskFull(const Status& status) {
    return absl::EndsWith(status.message(), "(ENOSPC)") || absl::EndsWith(status.message(), "(EDQUOT)");
}

void AppendRecord(uint64_t position, uint8_t lane, absl::string_view payload, std::string* out) {
    const size_t start = out->size();
    Put32(kRecordMagic, out);
    Put32(0, out);
    Put64(position, out);
    Put32(static_cast<uint32_t>(payload.size()), out);
    out->push_back(static_cast<char>(lane));
    out->append(3, '\0');
    out->append(payload.data(), payload.size());
    const uint32_t crc = htole32(Crc32c(absl::string_view(*out).substr(start + 8)));
    memcpy(out->data() + start + 4, &crc, sizeof(crc));
}

Parsed ParseRecord(absl::string_view data, size_t* at, SpoolRecord* record) {
    if (*at >= data.size()) return Parsed::kEnd;
    size_t whole = 0;
    const Parsed first = Look(data, *at, record, &whole);
    if (first == Parsed::kRecord) {
        *at += whole;
        return first;
    }
    // A length that was damaged looks like a record that is cut: only where no whole one follows it is.
    char magic[4];
    const uint32_t little = htole32(kRecordMagic);
    memcpy(magic, &little, sizeof(magic));
    for (size_t next = *at; (next = data.find(absl::string_view(magic, 4), next + 1)) != data.npos;) {
        if (Look(data, next, record, &whole) != Parsed::kRecord) continue;
        *at = next;
        return Parsed::kDamaged;
    }
    if (first == Parsed::kDamaged) *at = data.size();
    return first;
}

Status ReplaceFile(const std::string& path, const std::string& content) {
    const std::string fresh = path + ".new";
    {
        SK_ASSIGN_OR_RETURN(const Fd fd, Fd::Open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
        SK_RETURN_IF_ERROR(Annotate(WriteAll(fd.get(), content), absl::StrCat("write ", fresh)));
        if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", fresh));
    }
    if (rename(fresh.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("rename ", fresh));
    return absl::OkStatus();
}

StatusOr<SpoolFile> SpoolFile::Create(const std::string& path) {
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    return SpoolFile(std::move(fd), path, 0);
}

StatusOr<SpoolFile> SpoolFile::OpenForAppend(const std::string& path, uint64_t good_bytes) {
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(path, O_WRONLY | O_NOFOLLOW));
    if (ftruncate(fd.get(), static_cast<off_t>(good_bytes)) != 0) {
        return ErrnoStatus(errno, absl::StrCat("cut ", path, " behind its last whole record"));
    }
    return SpoolFile(std::move(fd), path, good_bytes);
}

Status SpoolFile::Write(absl::string_view records, const WriteFn& write) {
    const std::string with_magic = bytes_ == 0 ? absl::StrCat(kFileMagic, records) : "";
    absl::string_view left = bytes_ == 0 ? absl::string_view(with_magic) : records;
    const size_t size = left.size();
    if (lseek(fd_.get(), static_cast<off_t>(bytes_), SEEK_SET) < 0)
        return ErrnoStatus(errno, absl::StrCat("write ", path_));
    while (!left.empty()) {
        const ssize_t wrote = write(fd_.get(), left.data(), left.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            const int error = wrote == 0 ? ENOSPC : errno;
            // Half a record would be taken for damage. Should this fail as well, reading skips it.
            (void)!ftruncate(fd_.get(), static_cast<off_t>(bytes_));
            return ErrnoStatus(error, absl::StrCat("write ", path_));
        }
        left.remove_prefix(static_cast<size_t>(wrote));
    }
    bytes_ += size;
    return absl::OkStatus();
}

Status SpoolFile::Sync(const SyncFn& sync) const {
    if (sync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path_));
    return absl::OkStatus();
}

}  // namespace stockade::pipeline
