// The files that let the next agent take over (state.proto): written whole or not at all.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/sandbox/state.pb.h"

namespace stockade::sandbox {

using v1::StoredSandbox;

class StateFiles {
  public:
    // Makes `directory` (0700) when it is missing; its parent must exist.
    static StatusOr<StateFiles> Create(const std::string& directory);

    // Replaces the sandbox's file by one rename.
    Status Write(const StoredSandbox& stored) const;
    // OK also when there is none.
    Status Remove(const std::string& id) const;
    struct Loaded {
        std::vector<StoredSandbox> sandboxes;
        std::vector<std::string> broken;  // names of files that hold no sandbox; left alone
    };
    StatusOr<Loaded> Load() const;

  private:
    explicit StateFiles(std::string directory) : directory_(std::move(directory)) {}
    std::string directory_;
};

}  // namespace stockade::sandbox
