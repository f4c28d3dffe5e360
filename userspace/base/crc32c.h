// CRC-32C (Castagnoli), the checksum of iSCSI and ext4: finds cut and flipped bytes, proves nothing.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace stockade {

uint32_t Crc32c(absl::string_view bytes);
// The same, as where the CPU has no instruction for it.
uint32_t Crc32cByTables(absl::string_view bytes);

}  // namespace stockade
