// JSON lines that must not be lost: fed from the spool, a line counts once it is on the disk (in a pipe: once it is in it).
// Many lines share a sync.
//
//   SK_ASSIGN_OR_RETURN(auto file, MakeJsonlFile({{"path", "/var/log/stockade/events.jsonl"}, {"format", "ocsf"}}));
//
// Options:
//   path         file, FIFO, or - for standard output; required
//   format       json or ocsf (json)
//   rotatebytes  a file that would grow beyond it becomes <path>.1, that one <path>.2 and so on (104857600; 0 = never)
//   rotatekeep   how many of those are kept (5)
// A file that somebody else has renamed is made anew (logrotate needs no copytruncate). Half a line that a crash left
// is cut off: its event comes again. On a full disk, or without its directory, it tries again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exporters/exporter.h"

namespace stockade::exporters {

// kInvalidArgument names the option. Nothing is opened yet.
StatusOr<std::unique_ptr<SpooledExporter>> MakeJsonlFile(const ExporterOptions& options);
// With another fdatasync(2).
StatusOr<std::unique_ptr<SpooledExporter>> MakeJsonlFileSyncedBy(const ExporterOptions& options, std::function<int(int fd)> sync);
std::vector<std::string> JsonlFileOptionNames();

}  // namespace stockade::exporters
