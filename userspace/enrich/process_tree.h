// Who is whose child, and what each process runs, from exec, fork and exit events.
//
//   ProcessTree tree({});
//   tree.Enrich(&event);   // fills process.exe, argv and ancestry; learns from the event
//
// The parent's arguments are in the events of an exec alone: rules ask for them there, and the others come too often.
//
// A process is (tgid, start_boot_ns), never a bare pid. One thread. It does not read /proc, and
// knows of a process only what records said: under `record: violations` exe may stay empty.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/event.pb.h"

namespace stockade::enrich {

struct ProcessKey {
    uint32_t tgid = 0;
    uint64_t start_boot_ns = 0;
    bool operator==(const ProcessKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const ProcessKey& key) {
        return H::combine(std::move(h), key.tgid, key.start_boot_ns);
    }
};

class ProcessTree {
  public:
    struct Options {
        // 4,096 sandboxes with 16 processes each. At about 400 bytes each: 26 MB at the worst.
        size_t max_processes = 65536;
        // Exited ones are kept that long for records that come late through another ring.
        size_t max_exited = 1024;
    };
    struct Counters {
        uint64_t evicted_live = 0;    // the table was full: the longest untouched one went
        uint64_t evicted_exited = 0;  // as meant: the oldest exited one went
        uint64_t unknown = 0;         // events of a process that no record had introduced
    };
    explicit ProcessTree(Options options) : options_(options) {}

    // Fills in what is known, then learns. Call in the order of kernel_seq within a sandbox. `original`: the event
    // before it was redacted, null where nothing was; made where the arguments of its process were.
    void Enrich(v1::Event* event, std::unique_ptr<v1::Event>* original);
    void Enrich(v1::Event* event) {
        std::unique_ptr<v1::Event> none;
        Enrich(event, &none);
    }

    size_t size() const { return nodes_.size(); }
    const Counters& counters() const { return counters_; }

  private:
    struct Arguments {
        std::vector<std::string> items;
        bool truncated = false;
        bool escaped = false;
        bool redacted = false;
    };
    // As exported, and as they were: null where nothing was replaced.
    struct Argv {
        std::shared_ptr<const Arguments> shown;
        std::shared_ptr<const Arguments> original;
    };
    struct Link {
        ProcessKey key;
        std::shared_ptr<const std::string> exe;
        Argv argv;  // of the parent, at most kMaxParentArgv bytes; of those above it none
    };
    // Parent first, at most kMaxAncestors. Shared by all children of one image of a process, and
    // a copy, not a chain: else a sandbox that forks for ever would keep all its dead alive.
    using Ancestry = std::vector<Link>;
    struct Node {
        std::shared_ptr<const std::string> exe;
        Argv argv;
        std::shared_ptr<const Ancestry> ancestry;
        std::shared_ptr<const Ancestry> of_children;  // made at the first fork, gone at an exec
        std::list<ProcessKey>::iterator age;          // place in live_ or exited_
        bool exited = false;
    };

    Node* Find(const ProcessKey& key);
    Node& Add(const ProcessKey& key);
    void Touch(Node& node);
    void Evict();
    // `original`: with the arguments as they were.
    static void Fill(const Node& node, bool original, v1::Event* event);
    static bool HasOriginal(const Node& node, const v1::Event& event);
    static Argv ArgvOf(const v1::Exec& exec, const v1::Event* original);
    static std::shared_ptr<const Arguments> Bounded(const std::shared_ptr<const Arguments>& argv);
    void AdoptParent(const v1::Exec& exec, Node* node);
    void LearnExec(const v1::Event& event, const v1::Event* original, Node* node);
    void LearnFork(const ProcessKey& parent, const ProcessKey& child);
    void LearnExit(const ProcessKey& key);
    std::shared_ptr<const Ancestry> AncestryOfChildren(const ProcessKey& key, Node* node);

    const Options options_;
    Counters counters_;
    absl::flat_hash_map<ProcessKey, std::unique_ptr<Node>> nodes_;
    std::list<ProcessKey> live_;    // longest untouched first
    std::list<ProcessKey> exited_;  // oldest exit first
};

inline constexpr size_t kMaxAncestors = 8;
// A record has at most 2 KiB of arguments, which grow where they are escaped.
inline constexpr size_t kMaxParentArgv = 4096;

}  // namespace stockade::enrich
