// The data files of userspace/dns/data, as they are in the program.
#pragma once

#include "absl/strings/string_view.h"

namespace stockade::dns {

absl::string_view EmbeddedSuffixList();
absl::string_view EmbeddedModel();
absl::string_view EmbeddedProviderZones();
absl::string_view EmbeddedReservedZones();
absl::string_view EmbeddedRankedZones();

}  // namespace stockade::dns
