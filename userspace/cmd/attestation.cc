#include "userspace/cmd/attestation.h"

#include "userspace/model/coverage.h"

namespace stockade::cmd {

std::vector<CoverageRow> AttestedCoverage(kernel::Backend backend) {
    const model::Column column =
        backend == kernel::Backend::kLsm ? model::Column::kLsmLaunched : model::Column::kSignalLaunched;
    std::vector<CoverageRow> rows;
    for (size_t i = 0; i < model::Operations().size(); ++i) {
        const model::Coverage coverage = model::CoverageOf(static_cast<model::Operation>(i), column);
        rows.push_back({.operation = std::string(model::Operations()[i].id),
                        .cell = std::string(model::Text(coverage.cell)),
                        .reason = std::string(coverage.reason)});
    }
    return rows;
}

}  // namespace stockade::cmd
