// Whether what was exported is all that was exported: reads the events that arrived and says of each
// chain (node, sandbox) what is missing, double, out of order, changed or not closed.
//
//   Verifier verifier({.key = ""});
//   for each line: (void)verifier.AddLine(line);
//   for (const ChainReport& report : verifier.Finish()) ...
//
// What it rests on: export_seq has no gaps; each event's chain covers the one before it; the seal says
// which was the last, under the node's key. Losses that were told (`lost` events of the stage spool) are
// no gaps. The same event twice, which a delivery after a crash makes, is `repeated` and no fault.
//
// And on what the kernel numbered: a kernel_seq that is missing must be explained, by a repeat (of the kernel, or of
// what the policy's record level leaves out), by a loss that was told, or by the closing summary's count of what was
// suppressed. The summary's counts by kind, taken before the spool, must be reached.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"

namespace stockade::pipeline {

struct ChainReport {
    std::string node;
    std::string sandbox;  // empty = the node's own events
    uint64_t events = 0;  // distinct
    uint64_t last = 0;    // highest export_seq

    // Faults.
    uint64_t missing = 0;       // numbers that nobody told of
    uint64_t conflicting = 0;   // a number with two contents
    uint64_t out_of_order = 0;  // after a higher number
    uint64_t broken = 0;        // events that their chain does not fit
    uint64_t unnumbered = 0;    // without export_seq or chain
    uint64_t unexplained = 0;   // kernel_seq that is in no event, and that nothing stands for
    uint64_t twice = 0;         // events of a kernel_seq that another has
    uint64_t short_of_summary = 0;  // events that the closing summary counts and that nobody told of
    bool bad_seal = false;      // what it says of the end, or its signature, is wrong
    uint64_t first_fault = 0;   // lowest export_seq of any of them, 0 = none

    // Not complete, but told.
    uint64_t lost = 0;          // behind the number: given up or damaged in the spool, refused by the peer
    uint64_t lost_records = 0;  // of the kernel, before they had an export_seq
    bool sealed = false;        // without it: running still, or cut at the end

    uint64_t repeated = 0;
    uint64_t suppressed = 0;  // kernel records that repeats stand for
    std::string key;  // of the seal

    bool faulty() const {
        return missing + conflicting + out_of_order + broken + unnumbered + unexplained + twice + short_of_summary > 0 ||
               bad_seal;
    }
    bool complete() const { return !faulty() && sealed && lost + lost_records == 0; }
    // The node's own events never end, so nothing seals them: open is all that they can be.
    bool endless() const { return sandbox.empty() && !faulty() && lost + lost_records == 0; }
};

class Verifier {
  public:
    // Distinct chains, and events that wait for the one before them: of a hostile file too.
    static constexpr size_t kMaxChains = 1 << 20;
    static constexpr size_t kMaxPending = 1 << 20;

    struct Options {
        std::string key{};  // the node's public key, hexadecimal; empty = the one in the seal is believed
    };
    explicit Verifier(Options options) : options_(std::move(options)) {}

    // One JSON line. kInvalidArgument: it is no event; counted. An empty line is none.
    Status AddLine(absl::string_view line);
    Status Add(const v1::Event& event);
    // What comes now is another file or topic: order is judged within each.
    void NextSource() { ++source_; }
    std::vector<ChainReport> Finish();  // by node and sandbox
    uint64_t bad_lines() const { return bad_lines_; }

  private:
    struct Chain {
        ChainReport report;
        std::unordered_map<uint64_t, std::string> at;  // chain by export_seq
        std::map<uint64_t, v1::Event> pending;         // whose predecessor has not come
        std::map<uint64_t, v1::LostRange> lost;        // by first
        std::map<uint64_t, v1::Event> seals;
        uint64_t source = 0;       // of source_last
        uint64_t source_last = 0;  // highest export_seq there
        std::vector<uint64_t> kernel;  // kernel_seq, as they came
        std::map<std::string, std::vector<uint64_t>> kinds;  // export_seq of what the summary counts
        uint64_t repeats = 0;
        uint64_t left_out = 0;
        uint64_t lost_in_spool = 0;  // without a number
        uint64_t summary_seq = 0;
        v1::Summary summary;
    };
    void Check(Chain& chain, const v1::Event& event, absl::string_view before);
    void Close(Chain& chain);
    void CheckSeals(Chain& chain);
    static void Enter(Chain& chain, const v1::Event& event);
    static void CheckKernel(Chain& chain);
    static void CheckSummary(Chain& chain);

    const Options options_;
    std::map<std::pair<std::string, std::string>, Chain> chains_;
    size_t pending_ = 0;
    uint64_t source_ = 1;
    uint64_t bad_lines_ = 0;
};

}  // namespace stockade::pipeline
