// What of objects is kept as evidence: secrets taken out, and the part of pods that people look at first.
#pragma once

#include <google/protobuf/struct.pb.h>

#include <string>

#include "userspace/base/status.h"
#include "userspace/k8s/objects.h"

namespace stockade::k8s {

// The JSON of kubectl without what may be secret: values of environment variables, data of Secrets, and the copies that clients keep of an
// object in its annotations. Names stay.
StatusOr<std::string> Redacted(const std::string& json);

// One JSON document: of each pod uid, node, runtime, conditions, and its containers with users, images and mounts.
StatusOr<std::string> PodSummary(const ObjectSet& set);

}  // namespace stockade::k8s
