// Files and cgroups of one bench: made at its start, gone at its end.
#pragma once

#include <memory>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::bench {

//   <dir>/data/file      what is opened
//   <dir>/bin/step       what is executed
//   <cgroup>/base        no sandbox
//   <cgroup>/launched    parent of all sandboxes: carries the network programs
class Stage {
  public:
    static StatusOr<std::unique_ptr<Stage>> Create(const std::string& step);
    ~Stage();
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

    const std::string& dir() const { return dir_; }
    std::string file() const { return dir_ + "/data/file"; }
    std::string step() const { return dir_ + "/bin/step"; }
    const std::string& cgroup2_mount() const { return mount_; }
    std::string base_cgroup() const { return cgroup_ + "/base"; }
    std::string launched_cgroup() const { return cgroup_ + "/launched"; }
    // A new cgroup below launched_cgroup().
    StatusOr<std::string> NewCgroup();

  private:
    Stage() = default;

    std::string dir_;
    std::string mount_;
    std::string cgroup_;
    int made_ = 0;
};

}  // namespace stockade::bench
