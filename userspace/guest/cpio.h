// An initramfs as the kernel reads it: a cpio archive of the form "newc", uncompressed. The same entries give the same bytes.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stockade::guest {

class CpioWriter {
  public:
    // Parents before what they hold; paths without a leading slash.
    void AddDirectory(absl::string_view path, uint32_t mode);
    void AddFile(absl::string_view path, uint32_t mode, absl::string_view bytes);
    void AddCharDevice(absl::string_view path, uint32_t mode, uint32_t major, uint32_t minor);
    std::string Finish();

  private:
    void Add(absl::string_view path, uint32_t mode, uint32_t links, absl::string_view bytes, uint32_t major,
             uint32_t minor);

    std::string out_;
    uint32_t inode_ = 0;
};

}  // namespace stockade::guest
