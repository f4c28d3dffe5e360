#include "exporters/format/ocsf_class.h"

#include <initializer_list>

#include "absl/strings/match.h"

namespace stockade::exporters {
namespace {

struct Row {
    absl::string_view op;
    uint32_t id;
    absl::string_view caption;
};

OcsfActivity Look(OcsfClassUid uid, absl::string_view op, std::initializer_list<Row> rows) {
    for (const Row& row : rows) {
        if (row.op == op) return {uid, row.id, row.caption};
    }
    return {uid, kOcsfOther, ""};
}

OcsfActivity OfFile(absl::string_view op) {
    return Look(kFileActivity, op,
                {{"open-read", 2, "Read"},
                 {"open-write", 3, "Update"},
                 {"create", 1, "Create"},
                 {"truncate", 3, "Update"},
                 {"unlink", 4, "Delete"},
                 {"rename", 5, "Rename"},
                 {"link", 1, "Create"},
                 {"symlink", 1, "Create"},
                 {"mknod", 1, "Create"},
                 {"mkdir", 1, "Create"},
                 {"rmdir", 4, "Delete"},
                 {"chmod", 7, "Set Security"},
                 {"chown", 7, "Set Security"},
                 {"setxattr", 6, "Set Attributes"},
                 {"utimes", 6, "Set Attributes"},
                 {"open-by-handle", 14, "Open"},
                 {"open-directory", 14, "Open"}});
}

OcsfActivity OfNet(const v1::Event& event) {
    // Refused by us, whatever was asked for: that is what analysts filter by.
    if (event.outcome() == "prevented") return {kNetworkActivity, 5, "Refuse"};
    return Look(
        kNetworkActivity, event.net().op(),
        {{"connect", 1, "Open"}, {"send", 6, "Traffic"}, {"packet", 6, "Traffic"}, {"listen", 7, "Listen"}});
}

OcsfActivity OfLifecycle(absl::string_view op) {
    if (op == "condemned") return {kRemediationActivity, 1, "Isolate"};
    if (op == "killed" || op == "kill-pending") return {kRemediationActivity, 2, "Evict"};
    if (op == "policy-bound" || op == "policy-swapped") return {kDeviceConfigStateChange, 1, "Log"};
    return Look(kApplicationLifecycle, op,
                {{"registered", 1, "Install"},
                 {"started", 3, "Start"},
                 {"adopted", 5, "Restart"},
                 {"exited", 4, "Stop"},
                 {"destroyed", 2, "Remove"}});
}

OcsfActivity OfAction(absl::string_view action) {
    return Look(kRemediationActivity, action,
                {{"freeze", 1, "Isolate"},
                 {"isolate-network", 1, "Isolate"},
                 {"kill-sandbox", 2, "Evict"},
                 {"kill-process", 2, "Evict"},
                 {"thaw", 3, "Restore"},
                 {"release", 3, "Restore"},
                 {"deny", 4, "Harden"}});
}

OcsfActivity OfAgent(absl::string_view op) {
    if (absl::StartsWith(op, "policy")) return {kDeviceConfigStateChange, 1, "Log"};
    return Look(kApplicationLifecycle, op,
                {{"started", 3, "Start"},
                 {"adopted", 5, "Restart"},
                 {"stopping", 4, "Stop"},
                 {"upgraded", 8, "Update"}});
}

}  // namespace

OcsfActivity OcsfActivityOf(const v1::Event& event) {
    switch (event.payload_case()) {
        case v1::Event::kExec:
        case v1::Event::kFork:
            return {kProcessActivity, 1, "Launch"};
        case v1::Event::kExit:
            return {kProcessActivity, 2, "Terminate"};
        case v1::Event::kEscape:
            return Look(kProcessActivity, event.escape().op(),
                        {{"ptrace", 3, "Open"},
                         {"pidfd_getfd", 3, "Open"},
                         {"process_vm", 4, "Inject"},
                         {"proc-mem", 4, "Inject"}});
        case v1::Event::kFile:
            return OfFile(event.file().op());
        case v1::Event::kNet:
            return OfNet(event);
        case v1::Event::kDns:
            return {kDnsActivity, 1, "Query"};
        case v1::Event::kFinding:
            return {kDetectionFinding, 1, "Create"};
        case v1::Event::kAction:
            return OfAction(event.action().action());
        case v1::Event::kLifecycle:
            return OfLifecycle(event.lifecycle().op());
        case v1::Event::kAgent:
            return OfAgent(event.agent().op());
        // Of the stream itself: no class of the schema is about that.
        case v1::Event::kRepeat:
        case v1::Event::kLost:
        case v1::Event::kSummary:
        case v1::Event::kSeal:
        case v1::Event::PAYLOAD_NOT_SET:
            break;
    }
    return {kBaseEvent, kOcsfOther, ""};
}

absl::string_view OcsfClassName(OcsfClassUid uid) {
    switch (uid) {
        case kBaseEvent:
            return "Base Event";
        case kFileActivity:
            return "File System Activity";
        case kProcessActivity:
            return "Process Activity";
        case kDetectionFinding:
            return "Detection Finding";
        case kNetworkActivity:
            return "Network Activity";
        case kDnsActivity:
            return "DNS Activity";
        case kDeviceConfigStateChange:
            return "Device Config State Change";
        case kApplicationLifecycle:
            return "Application Lifecycle";
        case kRemediationActivity:
            return "Remediation Activity";
    }
    return "";
}

absl::string_view OcsfCategoryName(OcsfClassUid uid) {
    static constexpr absl::string_view kNames[] = {"Uncategorized",
                                                   "System Activity",
                                                   "Findings",
                                                   "Identity & Access Management",
                                                   "Network Activity",
                                                   "Discovery",
                                                   "Application Activity",
                                                   "Remediation"};
    return kNames[uid / 1000];
}

}  // namespace stockade::exporters
