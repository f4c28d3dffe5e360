// A policy proposed from what runs under `mode: observe` did.
//
//   Learner learner;
//   for (const v1::Event& event : events) learner.Add(event);
//   const Proposal proposal = learner.Propose();
//   fputs(ToYaml(proposal, {.name = "my-tool"}).c_str(), stdout);
//
// Learned is what happened, under whatever verdict; what was refused is not. Never proposed, and told instead: objects that
// hold credentials or lead out of the sandbox, names that a policy cannot say, operations that need a grant.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

// Different objects that are held of each list; a tool that touches more is told so, and its proposal is not whole.
inline constexpr size_t kMaxLearned = 100'000;
// So many files below one directory stand for all of it.
inline constexpr size_t kManyFiles = 5;

// Where one line of a proposal comes from.
struct Evidence {
    uint64_t count = 0;
    std::string program;  // that did it first
    std::string event;    // id of the first event
    std::string sample;   // the object as it was, of the first
};

struct LearnedLine {
    std::string text;  // a pattern, an address
    Evidence evidence;
};

struct Proposal {
    std::vector<LearnedLine> exec, libraries, read, write;
    std::vector<LearnedLine> connect;  // text: the whole flow mapping
    std::vector<LearnedLine> names;    // asked of DNS, where nothing was connected to
    std::set<uint16_t> loopback, bind;
    bool any_loopback = false;  // ports that the kernel chose were connected to
    std::vector<std::string> left_out;  // one sentence each
    uint64_t events = 0;
    std::set<std::string> sandboxes;
    // What was seen, as questions to the policy: each must be allowed by it.
    std::vector<TestCase> seen;
};

class Learner {
  public:
    void Add(const v1::Event& event);
    Proposal Propose() const;

  private:
    using Objects = std::map<std::string, Evidence>;
    void Note(Objects* objects, const std::string& object, const v1::Event& event);
    void AddFile(const v1::Event& event);
    void AddNet(const v1::Event& event);
    void LeaveOut(const std::string& what, const v1::Event& event);
    void ProposeNetwork(Proposal* out) const;

    Objects exec_, libraries_, read_, write_, connect_, unix_, names_, left_out_;
    std::set<uint16_t> loopback_, bind_;
    std::set<std::string> sandboxes_;
    uint64_t events_ = 0, beyond_ = 0;
};

struct YamlOptions {
    std::string name;
};
std::string ToYaml(const Proposal& proposal, const YamlOptions& options);

// A path as a pattern that holds for the next run, too: the numbers of processes and versions and the random parts of names
// become wildcards, what is the sandbox's own (/tmp, /out, /in, /dev/shm) is taken whole.
std::string GeneralPattern(absl::string_view path);
// The same of many: of kManyFiles and more below one directory that holds programs and their data, the directory.
std::map<std::string, Evidence> GeneralPatterns(const std::map<std::string, Evidence>& paths, bool whole_directories);
// Credentials, and ways out of the sandbox.
bool IsSensitive(absl::string_view path);

}  // namespace stockade::policy
