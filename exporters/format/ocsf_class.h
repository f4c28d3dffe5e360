// Which class and activity of OCSF 1.8.0 an event is.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "userspace/model/event.pb.h"

namespace stockade::exporters {

// class_uid = category_uid * 1000 + the class's own number.
enum OcsfClassUid : uint32_t {
    kBaseEvent = 0,
    kFileActivity = 1001,
    kProcessActivity = 1007,
    kDetectionFinding = 2004,
    kNetworkActivity = 4001,
    kDnsActivity = 4003,
    kDeviceConfigStateChange = 5019,
    kApplicationLifecycle = 6002,
    kRemediationActivity = 7001,
};

constexpr uint32_t kOcsfOther = 99;  // an activity that the class does not have; its name is our own

struct OcsfActivity {
    OcsfClassUid class_uid;
    uint32_t activity_id;
    absl::string_view activity;  // the schema's caption; empty for kOcsfOther
};

OcsfActivity OcsfActivityOf(const v1::Event& event);
// The schema's captions.
absl::string_view OcsfClassName(OcsfClassUid uid);
absl::string_view OcsfCategoryName(OcsfClassUid uid);

}  // namespace stockade::exporters
