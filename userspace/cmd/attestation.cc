#include "userspace/cmd/attestation.h"

namespace stockade::cmd {

model::CoverageTable AttestedCoverage(kernel::Backend backend, const model::FeatureSet& missing, LandlockCover landlock) {
    const model::Column column =
        backend == kernel::Backend::kLsm ? model::Column::kLsmLaunched : model::Column::kSignalLaunched;
    model::FeatureSet without = missing;
    without.set(static_cast<size_t>(model::Feature::LANDLOCK));
    model::CoverageTable table;
    for (size_t i = 0; i < model::Operations().size(); ++i) {
        const auto operation = static_cast<model::Operation>(i);
        const bool holds = landlock.files && (landlock.directories || operation != model::Operation::OPEN_DIRECTORY);
        const model::Coverage coverage = model::CoverageOf(operation, column, holds ? missing : without);
        table.emplace(model::Operations()[i].id, coverage.cell);
    }
    return table;
}

model::CoverageTable PodCoverage(kernel::Backend backend, const model::FeatureSet& missing) {
    const model::Column column = backend == kernel::Backend::kLsm ? model::Column::kLsm : model::Column::kSignal;
    model::CoverageTable table;
    for (size_t i = 0; i < model::Operations().size(); ++i)
        table.emplace(model::Operations()[i].id, model::CoverageOf(static_cast<model::Operation>(i), column, missing).cell);
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
