// What containerd's configuration says of NRI plugins: `containerd config dump`, or the drop-in that requires Stockade's.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::k8s {

struct RuntimeConfig {
    std::string file;
    bool nri_off = false;         // disable = true, in words
    bool validates = false;       // default_validator: enable = true
    std::vector<std::string> required;
    std::string tolerated_by;     // the annotation that excuses a pod
};

// The part of TOML that containerd writes itself: tables, and keys with words, texts and lists of texts. What it cannot read where it
// matters is an error, with the line.
StatusOr<RuntimeConfig> ReadRuntimeConfig(const std::string& file, const std::string& text);

}  // namespace stockade::k8s
