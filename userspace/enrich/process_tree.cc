#include "userspace/enrich/process_tree.h"

#include <utility>

namespace stockade::enrich {
namespace {

const std::shared_ptr<const std::string>& NoExe() {
    static const auto* const empty = new auto(std::make_shared<const std::string>());
    return *empty;
}

using Argv = std::vector<std::string>;

void SetArgv(const Argv& argv, v1::Process* process) {
    process->clear_argv();
    for (const std::string& argument : argv) process->add_argv(argument);
}

std::shared_ptr<const Argv> ArgvOf(const v1::Exec& exec) {
    return std::make_shared<const Argv>(exec.argv().begin(), exec.argv().end());
}

// A mapped library is no new image, and what was prevented never ran.
bool IsNewImage(const v1::Event& event) {
    return event.has_exec() && event.exec().role() != "mapped" && event.outcome() != "prevented";
}

}  // namespace

void ProcessTree::Enrich(v1::Event* event, std::unique_ptr<v1::Event>* original) {
    // The agent's own events, and losses, are about no process.
    if (!event->has_process() || event->process().start_boot_ns() == 0) return;
    const ProcessKey key{event->process().pid(), event->process().start_boot_ns()};
    Node* node = Find(key);
    if (!node) {
        ++counters_.unknown;
        node = &Add(key);
        if (event->has_exec()) AdoptParent(event->exec(), node);
    }
    Touch(*node);
    if (IsNewImage(*event)) LearnExec(*event, original->get(), node);
    Fill(*node, event->mutable_process());
    if (node->original_argv && *original == nullptr) *original = std::make_unique<v1::Event>(*event);
    if (*original != nullptr) {
        v1::Process* process = (*original)->mutable_process();
        Fill(*node, process);
        if (node->original_argv) SetArgv(*node->original_argv, process);
    }
    if (event->has_fork()) {
        LearnFork(key, {event->fork().child_pid(), event->fork().child_start_boot_ns()});
    } else if (event->has_exit()) {
        LearnExit(key);
    }
}

// The parent that an exec names, for a process whose fork was not recorded.
void ProcessTree::AdoptParent(const v1::Exec& exec, Node* node) {
    const ProcessKey parent{exec.parent_pid(), exec.parent_start_boot_ns()};
    if (parent.start_boot_ns == 0) return;
    if (Node* above = Find(parent)) {
        node->ancestry = AncestryOfChildren(parent, above);
    } else {
        node->ancestry = std::make_shared<const Ancestry>(Ancestry{{parent, NoExe()}});
    }
}

ProcessTree::Node* ProcessTree::Find(const ProcessKey& key) {
    const auto it = nodes_.find(key);
    return it == nodes_.end() ? nullptr : it->second.get();
}

ProcessTree::Node& ProcessTree::Add(const ProcessKey& key) {
    if (nodes_.size() >= options_.max_processes) Evict();
    auto node = std::make_unique<Node>();
    node->exe = NoExe();
    node->age = live_.insert(live_.end(), key);
    return *(nodes_[key] = std::move(node));
}

void ProcessTree::Touch(Node& node) {
    if (!node.exited) live_.splice(live_.end(), live_, node.age);
}

void ProcessTree::Evict() {
    const bool dead = !exited_.empty();
    std::list<ProcessKey>& from = dead ? exited_ : live_;
    if (from.empty()) return;  // max_processes of 0
    ++(dead ? counters_.evicted_exited : counters_.evicted_live);
    nodes_.erase(from.front());
    from.pop_front();
}

void ProcessTree::Fill(const Node& node, v1::Process* process) {
    process->set_exe(*node.exe);
    process->clear_argv();
    if (node.argv) SetArgv(*node.argv, process);
    process->clear_ancestry();
    if (!node.ancestry) return;
    for (const Link& link : *node.ancestry) {
        v1::Ancestor* ancestor = process->add_ancestry();
        ancestor->set_pid(link.key.tgid);
        ancestor->set_start_boot_ns(link.key.start_boot_ns);
        ancestor->set_exe(*link.exe);
    }
}

void ProcessTree::LearnExec(const v1::Event& event, const v1::Event* original, Node* node) {
    const v1::Exec& exec = event.exec();
    node->exe = std::make_shared<const std::string>(exec.path());
    if (exec.argv_size() > 0) {
        node->argv = ArgvOf(exec);
        node->original_argv = exec.argv_redacted() > 0 && original != nullptr ? ArgvOf(original->exec()) : nullptr;
    }
    node->of_children.reset();
}

void ProcessTree::LearnFork(const ProcessKey& parent, const ProcessKey& child) {
    Node* node = Find(child);
    if (!node) node = &Add(child);
    // Add may have evicted the parent: a table of one.
    Node* above = Find(parent);
    if (!above) return;
    if (node->exe->empty()) node->exe = above->exe;
    if (!node->argv) {
        node->argv = above->argv;
        node->original_argv = above->original_argv;
    }
    node->ancestry = AncestryOfChildren(parent, above);
}

void ProcessTree::LearnExit(const ProcessKey& key) {
    Node* node = Find(key);
    if (!node || node->exited) return;
    node->exited = true;
    exited_.splice(exited_.end(), live_, node->age);
    if (exited_.size() > options_.max_exited) Evict();
}

std::shared_ptr<const ProcessTree::Ancestry> ProcessTree::AncestryOfChildren(
    const ProcessKey& key, Node* node) {
    if (!node->of_children) {
        auto ancestry = std::make_shared<Ancestry>();
        ancestry->push_back({key, node->exe});
        if (node->ancestry) {
            for (const Link& link : *node->ancestry) {
                if (ancestry->size() == kMaxAncestors) break;
                ancestry->push_back(link);
            }
        }
        node->of_children = std::move(ancestry);
    }
    return node->of_children;
}

}  // namespace stockade::enrich
