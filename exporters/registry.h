// Exporters by name. One row each in registry.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exporters/exporter.h"

namespace stockade::exporters {

// kNotFound lists the known names; kInvalidArgument names the option that is unknown, missing
// or wrong; other codes say what could not be opened.
StatusOr<std::unique_ptr<Exporter>> MakeExporter(absl::string_view name,
                                                 const ExporterOptions& options);
std::vector<std::string> ExporterNames();

}  // namespace stockade::exporters
