// JSON lines that must not be lost: fed from the spool, a line counts once the operating system has it.
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

#include <memory>
#include <string>
#include <vector>

#include "exporters/exporter.h"

namespace stockade::exporters {

// kInvalidArgument names the option. Nothing is opened yet.
StatusOr<std::unique_ptr<SpooledExporter>> MakeJsonlFile(const ExporterOptions& options);
std::vector<std::string> JsonlFileOptionNames();

}  // namespace stockade::exporters
