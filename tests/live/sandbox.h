// For tests: a sandbox made with the Sensor alone, without launcher or agent, and what became of it.
//
//   Policy policy{.read = {"/usr/**"}};
//   Result result = RunSandboxed(policy, {"open_read", "/etc/shadow"});
//   EXPECT_TRUE(result.killed()); EXPECT_EQ(result.Violations().size(), 1u);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bpf/wire/record.h"
#include "userspace/base/fd.h"
#include "userspace/kernel/sensor.h"
#include "userspace/model/coverage_features.h"

namespace stockade::live {

// The one of the process: loading takes seconds in a guest. Null when it could not be had; the test that asks fails.
kernel::Sensor* TheSensor();
// What this kernel lacks, for the coverage table.
const model::FeatureSet& MissingFeatures();
bool UnderLsm();
bool InGuest();
// How long a test waits before it calls something lost.
int PatienceMs();
// The static program of tests/triggers.
std::string TriggersPath();

// The few words of a policy that tests differ in; nothing of the built-in base is added.
struct Policy {
    std::vector<std::string> exec = {};       // beside the triggers, which may always run
    std::vector<std::string> libraries = {};
    std::vector<std::string> read = {}, write = {}, deny = {};
    std::vector<std::string> network = {};    // items of network.allow, in YAML
    std::vector<int> loopback = {};
    std::vector<std::string> grants = {};
    std::string violation = "deny";
    std::string entered = "deny";
    bool observe = false;
    bool network_section = true;
    std::vector<uint32_t> denied = {};  // not of the document: IPv4 addresses in host order, 0x7f000001
    bool closed = false;  // not of the document: nobody enters this sandbox

    std::string Text() const;
};
// Compiled and published; -1 and a test failure when it is not to be had.
int64_t Publish(const Policy& policy);

struct Record {
    sk_head head;
    std::vector<uint8_t> bytes;
    uint32_t op() const;  // of file, net and escape records
};
// All records that lie in the rings, of whatever sandbox.
std::vector<Record> DrainRecords();

struct Result {
    int status = -1;       // of waitpid; -1 = it never ended
    std::string output;
    bool timed_out = false;
    kernel::SlotRef ref;
    std::vector<Record> records;  // of this sandbox
    sk_state state{};

    bool killed() const;
    int exit_code() const;  // -1 when it did not exit
    std::vector<Record> Violations() const;
    const Record* Find(uint32_t code) const;
    std::string Describe() const;
};

// A bound cgroup with one labelled child in it that waits to become the trigger.
class Sandbox {
  public:
    // `spare_fd`, if any, becomes descriptor 7 of the child.
    Sandbox(const Policy& policy, const std::vector<std::string>& args, int spare_fd = -1, bool label = true);
    ~Sandbox();
    Sandbox(const Sandbox&) = delete;
    Sandbox& operator=(const Sandbox&) = delete;

    bool ok() const { return ok_; }
    void Go();
    // Reads output until `text` has come; false at the deadline or the end.
    bool WaitOutput(const std::string& text);
    // Until `bytes` more have come.
    bool WaitMore(size_t bytes);
    // Until all that holds the output has ended.
    Result Finish();

    const std::string& cgroup() const { return cgroup_; }
    int cgroup_fd() const { return cgroup_fd_.get(); }
    pid_t pid() const { return pid_; }
    int pidfd() const { return pidfd_.get(); }
    const kernel::SlotRef& ref() const { return ref_; }
    const std::string& output() const { return output_; }
    bool WriteInput(const std::string& bytes) { return WriteAll(input_.get(), bytes).ok(); }
    void CloseInput() { input_.Reset(); }
    // The cgroup was bound anew by the test: the end frees that slot.
    void Adopt(const kernel::SlotRef& ref) { ref_ = ref; }

  private:
    void Fork(const std::vector<std::string>& args, int spare_fd);
    bool ReadSome(int timeout_ms);
    void End();

    bool ok_ = false;
    std::string cgroup_;
    Fd cgroup_fd_, pidfd_, start_, output_fd_, input_;
    pid_t pid_ = -1;
    uint32_t policy_index_ = 0;
    bool bound_ = false;
    bool published_ = false;
    kernel::SlotRef ref_;
    std::string output_;
};

Result RunSandboxed(const Policy& policy, const std::vector<std::string>& args, int spare_fd = -1);

// The cgroup that all sandboxes of this process lie in; carries the network programs. Removed at the end.
std::string ParentCgroup();
// The one that this lies in, without a program of ours: for programs of others.
std::string OuterCgroup();

}  // namespace stockade::live
