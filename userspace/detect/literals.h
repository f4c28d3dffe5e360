// Which of many literal texts stand in a buffer: one pass, whatever their number. The only file that
// knows Vectorscan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::detect {

class LiteralScanner {
  public:
    // Texts must not be empty. kUnimplemented where the processor lacks what Vectorscan needs.
    static StatusOr<std::unique_ptr<LiteralScanner>> Create(const std::vector<std::string>& texts);
    ~LiteralScanner();

    // Appends the places in `texts` of those that `buffer` holds, each at most once. False when it could not look;
    // then nothing is known. Not thread-safe: one scratch.
    bool Scan(absl::string_view buffer, std::vector<int>* found);
    size_t bytes() const;

  private:
    LiteralScanner() = default;
    struct Database;
    std::unique_ptr<Database> database_;
};

}  // namespace stockade::detect
