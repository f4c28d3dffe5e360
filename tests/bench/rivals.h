// What others do to run one program apart from the host: bubblewrap and runc, with as little as Stockade's native runtime shows.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/stage.h"
#include "userspace/base/status.h"

namespace stockade::bench {

struct Rival {
    std::string name;
    std::vector<std::string> args;  // runs "/step now"
};

// kNotFound where the program is not installed.
StatusOr<Rival> Bubblewrap(const Stage& stage);
// Makes a bundle below the stage. runc runs one container of a name at a time.
StatusOr<Rival> Runc(const Stage& stage);

}  // namespace stockade::bench
