// A tool, its contract and its policy in an installation of its own, and calls of it.
#pragma once

#include <string>
#include <vector>

#include "tests/tools/product.h"

namespace stockade::tests {

class Tool {
  public:
    // `spec`: lines of the contract's spec, beside class, command (any program of /usr), policy and timeout.
    explicit Tool(const std::string& spec = "", const std::string& config = "");

    // One call: a shell script.
    Ran Sh(const std::string& script, const std::vector<std::string>& flags = {});
    Ran Call(const std::vector<std::string>& command, const std::vector<std::string>& flags = {});
    // The same in two steps.
    pid_t Start(const std::vector<std::string>& command, const std::vector<std::string>& flags, const std::string& tag);
    Ran Finish(pid_t pid, const std::string& tag) { return product.Finish(pid, tag); }

    void WriteContract(const std::string& spec);
    // Names and texts in --out, "name=text", sorted.
    std::vector<std::string> Out() const;
    // Of what a call could have made: agent, cgroups, pins, mounts of this namespace, processes beside `client`. Empty = nothing is there.
    std::string WhatExists(pid_t client) const;

    Product product;
    std::string in, out;

  private:
    std::string mounts_;
    int count_ = 0;
};

}  // namespace stockade::tests
