#include "userspace/cmd/attestation.h"

namespace stockade::cmd {

model::CoverageTable AttestedCoverage(kernel::Backend backend, model::FeatureSet missing, bool landlock) {
    const model::Column column =
        backend == kernel::Backend::kLsm ? model::Column::kLsmLaunched : model::Column::kSignalLaunched;
    if (!landlock) missing.set(static_cast<size_t>(model::Feature::LANDLOCK));
    model::CoverageTable table;
    for (size_t i = 0; i < model::Operations().size(); ++i) {
        const model::Coverage coverage = model::CoverageOf(static_cast<model::Operation>(i), column, missing);
        table.emplace(model::Operations()[i].id, coverage.cell);
    }
    return table;
}

std::vector<CoverageRow> CoverageRows(const model::CoverageTable& table) {
    std::vector<CoverageRow> rows;
    for (const model::OperationInfo& operation : model::Operations()) {
        const auto found = table.find(operation.id);
        if (found == table.end()) continue;
        rows.push_back(
            {.operation = std::string(operation.id), .cell = std::string(model::Text(found->second))});
    }
    return rows;
}

}  // namespace stockade::cmd
