#include "userspace/guest/cpio.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace stockade::guest {
namespace {

void Pad(std::string* out) { out->append((4 - out->size() % 4) % 4, '\0'); }

}  // namespace

// SOURCE: Documentation/driver-api/early-userspace/buffer-format.rst
void CpioWriter::Add(absl::string_view path, uint32_t mode, uint32_t links, absl::string_view bytes,
                     uint32_t major, uint32_t minor) {
    absl::StrAppend(&out_, "070701");
    // inode, mode, uid, gid, links, mtime, size, the device it lies on, the device it is, length of the name, checksum
    const uint32_t fields[] = {++inode_,
                               mode,
                               0,
                               0,
                               links,
                               0,
                               static_cast<uint32_t>(bytes.size()),
                               0,
                               0,
                               major,
                               minor,
                               static_cast<uint32_t>(path.size() + 1),
                               0};
    for (uint32_t field : fields) absl::StrAppend(&out_, absl::Hex(field, absl::kZeroPad8));
    absl::StrAppend(&out_, path);
    out_.push_back('\0');
    Pad(&out_);
    absl::StrAppend(&out_, bytes);
    Pad(&out_);
}

void CpioWriter::AddDirectory(absl::string_view path, uint32_t mode) {
    Add(path, S_IFDIR | mode, 2, "", 0, 0);
}

void CpioWriter::AddFile(absl::string_view path, uint32_t mode, absl::string_view bytes) {
    Add(path, S_IFREG | mode, 1, bytes, 0, 0);
}

void CpioWriter::AddCharDevice(absl::string_view path, uint32_t mode, uint32_t major, uint32_t minor) {
    Add(path, S_IFCHR | mode, 1, "", major, minor);
}

std::string CpioWriter::Finish() {
    Add("TRAILER!!!", 0, 1, "", 0, 0);
    return std::move(out_);
}

}  // namespace stockade::guest
