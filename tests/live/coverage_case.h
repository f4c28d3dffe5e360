// For tests: one way to do an operation of the coverage table, and how its effect is seen from outside.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bpf/wire/kinds.h"
#include "tests/live/listeners.h"
#include "tests/live/sandbox.h"
#include "tests/live/tree.h"
#include "userspace/model/coverage.h"

namespace stockade::live {

// What a case finds: a file system with /in, which the policy lets read and write, and /no, which it does not name; listeners on
// loopback. Words of a case may hold {in} {no} {tree} {triggers} {port} {allowed} {cgroup} and what `prepare` adds to `words`.
struct World {
    Tree tree;
    Listeners listeners;
    std::map<std::string, std::string> words;
    Policy policy;
    int spare_fd = -1;          // becomes descriptor 7
    std::vector<Fd> kept = {};  // open until the run is over

    std::string Fill(std::string text) const;
    std::string At(const std::string& path) const { return Fill(path); }
    bool Exists(const std::string& path) const;
    std::string Content(const std::string& path) const;
    void Write(const std::string& path, const std::string& content, unsigned mode = 0644);
    // A copy of the triggers, of a host's program.
    void Copy(const std::string& from, const std::string& to);
};

struct Case {
    model::Operation operation;
    std::string name;
    std::vector<std::string> args;
    uint32_t code;
    // The code where the signal backend finds it by another way; 0 = the same.
    uint32_t code_signal = 0;
    // Beside the default policy.
    Policy policy = {};
    std::function<void(World&)> prepare = nullptr;
    // Null: the trigger says done.
    std::function<bool(World&, const Result&)> effect = nullptr;
    // The effect stays when the caller is killed after it.
    bool lasting = false;
    // A kernel may lack this route; then neither run has an effect.
    bool optional = false;
    // Two threads race: where the table says "unseen", it is unseen only when the right one wins.
    bool raced = false;
    // Killed after the effect, the whole sandbox dies with the caller: others in it may hold what it got.
    bool whole = false;
    // What the trigger says in the instruction after the call. A task beside the caller says "done" whenever it has the bytes.
    std::string after = "done";
    // A second code that the control run may meet: what comes after, had it not been stopped.
    uint32_t also = 0;
    // Done by another process or program than the trigger: how the trigger ends says nothing.
    bool by_descendant = false;
    // The cell where this way differs from the operation's row, with a reason.
    std::optional<model::Cell> cell_signal = std::nullopt, cell_lsm = std::nullopt;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> ExecCases();
std::vector<Case> OpenCases();
std::vector<Case> PathCases();
std::vector<Case> NetCases();
std::vector<Case> SocketCases();
std::vector<Case> EscapeCases();

}  // namespace stockade::live
