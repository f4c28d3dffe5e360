// What all sandboxes of a test process share: the sensor, its rings, the parent cgroup, policies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/file.h"
#include "bpf/wire/net.h"
#include "tests/live/sandbox.h"
#include "userspace/kernel/probe.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::live {
namespace {

struct Shared {
    std::unique_ptr<kernel::Sensor> sensor;
    model::FeatureSet missing;
    std::string outer, cgroup;
    Fd cgroup_fd;
    std::vector<Record> drained;

    ~Shared() {
        sensor.reset();
        // A failed test may have left something in them.
        if (!cgroup.empty()) (void)rmdir(cgroup.c_str());
        if (!outer.empty()) (void)rmdir(outer.c_str());
    }
};

Status Start(Shared& shared) {
    SK_ASSIGN_OR_RETURN(kernel::ProbeReport report, kernel::Probe({}));
    shared.missing = report.missing();
    SK_ASSIGN_OR_RETURN(shared.sensor, kernel::Sensor::Create({.pin_dir = ""}));
    shared.outer = absl::StrCat(report.cgroup2_mount, "/sk_live_", getpid());
    shared.cgroup = shared.outer + "/sandboxes";
    for (const std::string& made : {shared.outer, shared.cgroup}) {
        if (mkdir(made.c_str(), 0755) != 0) return absl::InternalError(absl::StrCat("mkdir ", made));
    }
    SK_ASSIGN_OR_RETURN(shared.cgroup_fd, Fd::Open(shared.cgroup, O_RDONLY | O_DIRECTORY));
    return shared.sensor->AttachNetwork(shared.cgroup_fd.get());
}

Shared& TheShared() {
    static Shared shared;
    static bool started = false;
    if (!started) {
        started = true;
        Status status = Start(shared);
        EXPECT_TRUE(status.ok()) << status;
        if (!status.ok()) shared.sensor.reset();
    }
    return shared;
}

std::string List(const std::vector<std::string>& items) {
    return absl::StrCat("[", absl::StrJoin(items, ", ", [](std::string* out, const std::string& item) {
        absl::StrAppend(out, "\"", item, "\"");
    }), "]");
}

}  // namespace

kernel::Sensor* TheSensor() { return TheShared().sensor.get(); }
const model::FeatureSet& MissingFeatures() { return TheShared().missing; }
std::string ParentCgroup() { return TheShared().cgroup; }
std::string OuterCgroup() { return TheShared().outer; }
bool UnderLsm() { return TheSensor() && TheSensor()->backend() == kernel::Backend::kLsm; }
bool InGuest() { return getenv("STOCKADE_IN_GUEST") != nullptr; }
int PatienceMs() { return InGuest() ? 60000 : 20000; }

std::string TriggersPath() {
    const char* bin = getenv("STOCKADE_BIN_DIR");
    if (bin) return absl::StrCat(bin, "/tests/triggers");
    // Started by hand: beside the test itself.
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
    std::string path(self, n > 0 ? static_cast<size_t>(n) : 0);
    return absl::StrCat(path.substr(0, path.rfind('/')), "/triggers");
}

std::string Policy::Text() const {
    std::vector<std::string> programs = exec;
    programs.push_back(TriggersPath());
    const std::string net = absl::StrCat("\n  network: {allow: [", absl::StrJoin(network, ", "), "], loopback: [", absl::StrJoin(loopback, ", "), "]}");
    return absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: live}\nspec:\n  extends: []\n  mode: ",
                        observe ? "observe" : "enforce", "\n  violation: ", violation, "\n  entered: ", entered,
                        "\n  exec: {allow: ", List(programs), ", libraries: ", List(libraries), "}\n  files: {read: ", List(read),
                        ", write: ", List(write), ", deny: ", List(deny), "}", network_section ? net : "", "\n  grants: ", List(grants),
                        "\n  record: {exec: all, files: all, network: all}\n");
}

int64_t Publish(const Policy& policy) {
    std::vector<policy::Diagnostic> diagnostics;
    policy::PolicyLibrary library;
    policy::ParseResult parsed = policy::ParseFiles({{"live.yaml", policy.Text()}});
    for (const auto& diagnostic : parsed.diagnostics) {
        if (diagnostic.severity == policy::Severity::kError) ADD_FAILURE() << policy::ToString(diagnostic) << "\n" << policy.Text();
    }
    library.Add(std::move(parsed.policies), diagnostics);
    auto resolved = library.Resolve("live", diagnostics);
    auto root = Fd::Open("/", O_PATH);
    if (!resolved || !root.ok()) {
        ADD_FAILURE() << "the policy does not resolve\n" << policy.Text();
        return -1;
    }
    for (uint32_t address : policy.denied) {
        policy::NetworkRule& rule = resolved->denied.emplace_back();
        rule.family = 4;
        rule.bits = 32;
        rule.lo = address;
    }
    auto compiled = policy::Compile(*resolved, TheSensor()->keys(), {.root_fd = root->get()});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return -1;
    auto index = TheSensor()->PublishPolicy(compiled->cells);
    EXPECT_TRUE(index.ok()) << index.status();
    return index.ok() ? static_cast<int64_t>(*index) : -1;
}

std::vector<Record> DrainRecords() {
    std::vector<Record> records;
    auto keep = [&](kernel::Ring, std::span<const uint8_t> bytes) {
        Record& record = records.emplace_back();
        record.bytes.assign(bytes.begin(), bytes.end());
        std::memcpy(&record.head, bytes.data(), std::min(bytes.size(), sizeof(record.head)));
    };
    for (;;) {
        auto count = TheSensor()->PollRings(0, keep);
        TheSensor()->ReleaseRings(TheSensor()->Handed());
        EXPECT_TRUE(count.ok()) << count.status();
        if (!count.ok() || *count == 0) return records;
    }
}

uint32_t Record::op() const {
    uint32_t value = 0;
    size_t at = head.kind == SK_KIND_FILE     ? offsetof(sk_file, op)
                : head.kind == SK_KIND_NET    ? offsetof(sk_net, op)
                : head.kind == SK_KIND_ESCAPE ? offsetof(sk_escape, op)
                                              : bytes.size();
    if (at + sizeof(value) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
}

}  // namespace stockade::live
