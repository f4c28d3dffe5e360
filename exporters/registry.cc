#include "exporters/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporters/jsonl/jsonl.h"

namespace stockade::exporters {
namespace {

constexpr struct {
    const char* name;
    StatusOr<std::unique_ptr<Exporter>> (*make)(const ExporterOptions&);
} kExporters[] = {
    {"jsonl", MakeJsonl},
};

}  // namespace

std::vector<std::string> ExporterNames() {
    std::vector<std::string> names;
    for (const auto& row : kExporters) names.emplace_back(row.name);
    return names;
}

StatusOr<std::unique_ptr<Exporter>> MakeExporter(absl::string_view name,
                                                 const ExporterOptions& options) {
    for (const auto& row : kExporters) {
        if (name == row.name) return row.make(options);
    }
    return absl::NotFoundError(absl::StrCat("no exporter \"", name, "\"; there are: ",
                                            absl::StrJoin(ExporterNames(), ", ")));
}

}  // namespace stockade::exporters
