// JSON lines to a file or a descriptor.
#pragma once

#include <memory>
#include <string>

#include "exporters/exporter.h"
#include "userspace/base/fd.h"

namespace stockade::exporters {

struct JsonlOptions {
    // Bytes collected before a write. 64 KiB is the size of a pipe; a line goes out at once
    // when it is 0.
    size_t buffer_bytes = 64 << 10;
};

// Options: path ("-" is standard output; else created 0600, appended to), buffer_bytes.
StatusOr<std::unique_ptr<Exporter>> MakeJsonl(const ExporterOptions& options);
// Writes to a descriptor of the caller's.
std::unique_ptr<Exporter> MakeJsonlFd(Fd fd, std::string name, JsonlOptions options);

}  // namespace stockade::exporters
