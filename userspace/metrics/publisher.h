// Where the agent leaves its latest Families, for whoever shows them. The agent knows no more of metrics than this.
#pragma once

#include <memory>

#include "userspace/metrics/families.h"

namespace stockade::metrics {

class Publisher {
  public:
    virtual ~Publisher() = default;
    // Replaces what was there. Does not wait for a scrape.
    virtual void Publish(std::shared_ptr<const Families> families) = 0;
};

}  // namespace stockade::metrics
