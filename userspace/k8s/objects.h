// Kubernetes objects as they are written: YAML manifests, and what `kubectl get ... -o json` prints.
//
//   ObjectSet set;
//   SK_RETURN_IF_ERROR(ReadObjects("pods.json", text, &set));
//   for (const Object& pod : set.OfKind("Pod")) pod.Text("spec.nodeName");
//
// Not a client of the API server, and no schema: a value of another type than asked for is as one that is not there.
#pragma once

#include <google/protobuf/struct.pb.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/k8s/runtime_config.h"

namespace stockade::k8s {

// A cluster of 5,000 pods is some 60 MB of JSON; protobuf's tree of it takes ten times as much.
inline constexpr size_t kMaxJsonBytes = 128u << 20;

// Any value within an object; null where there is none. Borrowed from the set.
class Node {
  public:
    Node() = default;
    explicit Node(const google::protobuf::Value* value) : value_(value) {}

    bool exists() const;                         // null is as nothing, as the API server has it
    Node Get(absl::string_view path) const;      // "spec.template.spec"; keys with dots: Key()
    Node Key(const std::string& key) const;
    std::string Text(absl::string_view path) const;  // "" where there is none
    std::string text() const;
    // As the API server takes it: true, false, or what it is when nothing is written.
    bool Flag(absl::string_view path, bool otherwise) const;
    double Number(absl::string_view path, double otherwise) const;
    std::vector<Node> Items(absl::string_view path) const;         // of a list
    std::vector<std::string> Keys(absl::string_view path) const;   // of a map, sorted

  private:
    const google::protobuf::Value* value_ = nullptr;  // not owned
};

// One object: metadata and the rest.
class Object : public Node {
  public:
    explicit Object(const google::protobuf::Value* value) : Node(value) {}
    std::string kind() const { return Text("kind"); }
    std::string name() const;        // of one that is not there yet: its generateName and a star
    std::string space() const { return Text("metadata.namespace"); }  // "" of the cluster's, and where a manifest leaves it open
    std::string Label(const std::string& key) const { return Get("metadata.labels").Key(key).text(); }
    bool HasLabel(const std::string& key) const { return Get("metadata.labels").Key(key).exists(); }
    std::string Annotation(const std::string& key) const { return Get("metadata.annotations").Key(key).text(); }
    std::string Called() const;      // "Pod stockade-tools/tool-1"
};

class ObjectSet {
  public:
    void Add(google::protobuf::Value value);
    std::vector<Object> OfKind(absl::string_view kind) const;
    bool Has(absl::string_view kind) const { return !OfKind(kind).empty(); }
    size_t size() const { return size_; }
    std::vector<RuntimeConfig> runtimes;  // of nodes, where somebody gave them
    // Documents that are no Kubernetes objects, as "FILE:LINE".
    std::vector<std::string> skipped;

  private:
    size_t size_ = 0;
    std::map<std::string, std::deque<google::protobuf::Value>, std::less<>> objects_;  // by kind; a deque: Objects point into it
};

// JSON where the text begins with '{', else YAML. Lists are taken apart. `name` is for what is wrong: "FILE: ...", or with line and column.
Status ReadObjects(const std::string& name, const std::string& text, ObjectSet* out);

}  // namespace stockade::k8s
