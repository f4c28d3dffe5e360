#include "userspace/enrich/process_tree.h"

#include <utility>

namespace stockade::enrich {
namespace {

const std::shared_ptr<const std::string>& NoExe() {
    static const auto* const empty = new auto(std::make_shared<const std::string>());
    return *empty;
}

template <typename Arguments, typename Holder>
void SetArgv(const Arguments& argv, Holder* holder) {
    holder->clear_argv();
    for (const std::string& argument : argv.items) holder->add_argv(argument);
    holder->set_argv_truncated(argv.truncated);
    holder->set_argv_escaped(argv.escaped);
    holder->set_argv_redacted(argv.redacted);
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
    Fill(*node, false, event);
    if (HasOriginal(*node, *event) && *original == nullptr) *original = std::make_unique<v1::Event>(*event);
    if (*original != nullptr) Fill(*node, true, original->get());
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
        node->ancestry = std::make_shared<const Ancestry>(Ancestry{{parent, NoExe(), {}}});
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

void ProcessTree::Fill(const Node& node, bool original, v1::Event* event) {
    const auto set = [original](const Argv& argv, auto* holder) {
        if (const Arguments* chosen = (original && argv.original ? argv.original : argv.shown).get())
            SetArgv(*chosen, holder);
    };
    v1::Process* process = event->mutable_process();
    process->set_exe(*node.exe);
    SetArgv(Arguments{}, process);
    set(node.argv, process);
    process->clear_ancestry();
    if (!node.ancestry) return;
    for (const Link& link : *node.ancestry) {
        v1::Ancestor* ancestor = process->add_ancestry();
        ancestor->set_pid(link.key.tgid);
        ancestor->set_start_boot_ns(link.key.start_boot_ns);
        ancestor->set_exe(*link.exe);
        if (event->has_exec()) set(link.argv, ancestor);
    }
}

bool ProcessTree::HasOriginal(const Node& node, const v1::Event& event) {
    if (node.argv.original) return true;
    return event.has_exec() && node.ancestry && !node.ancestry->empty() &&
           node.ancestry->front().argv.original;
}

ProcessTree::Argv ProcessTree::ArgvOf(const v1::Exec& exec, const v1::Event* original) {
    const auto make = [](const v1::Exec& from, bool redacted) {
        auto out = std::make_shared<Arguments>();
        out->items.assign(from.argv().begin(), from.argv().end());
        out->truncated = from.argv_truncated();
        out->escaped = from.argv_escaped();
        out->redacted = redacted;
        return out;
    };
    const bool redacted = exec.argv_redacted() > 0;
    Argv argv{.shown = make(exec, redacted), .original = nullptr};
    if (redacted && original != nullptr) argv.original = make(original->exec(), false);
    return argv;
}

// Whole arguments, so that no escape is cut in two.
std::shared_ptr<const ProcessTree::Arguments> ProcessTree::Bounded(
    const std::shared_ptr<const Arguments>& argv) {
    if (!argv) return argv;
    size_t bytes = 0, kept = 0;
    while (kept < argv->items.size() && bytes + argv->items[kept].size() <= kMaxParentArgv)
        bytes += argv->items[kept++].size();
    if (kept == argv->items.size()) return argv;
    auto out = std::make_shared<Arguments>(*argv);
    out->items.resize(kept);
    out->truncated = true;
    return out;
}

void ProcessTree::LearnExec(const v1::Event& event, const v1::Event* original, Node* node) {
    node->exe = std::make_shared<const std::string>(event.exec().path());
    if (event.exec().argv_size() > 0) node->argv = ArgvOf(event.exec(), original);
    node->of_children.reset();
}

void ProcessTree::LearnFork(const ProcessKey& parent, const ProcessKey& child) {
    Node* node = Find(child);
    if (!node) node = &Add(child);
    // Add may have evicted the parent: a table of one.
    Node* above = Find(parent);
    if (!above) return;
    if (node->exe->empty()) node->exe = above->exe;
    if (!node->argv.shown) node->argv = above->argv;
    node->ancestry = AncestryOfChildren(parent, above);
}

void ProcessTree::LearnExit(const ProcessKey& key) {
    Node* node = Find(key);
    if (!node || node->exited) return;
    node->exited = true;
    exited_.splice(exited_.end(), live_, node->age);
    if (exited_.size() > options_.max_exited) Evict();
}

std::shared_ptr<const ProcessTree::Ancestry> ProcessTree::AncestryOfChildren(const ProcessKey& key,
                                                                             Node* node) {
    if (!node->of_children) {
        auto ancestry = std::make_shared<Ancestry>();
        ancestry->push_back({key, node->exe, {Bounded(node->argv.shown), Bounded(node->argv.original)}});
        if (node->ancestry) {
            for (const Link& link : *node->ancestry) {
                if (ancestry->size() == kMaxAncestors) break;
                ancestry->push_back({link.key, link.exe, {}});
            }
        }
        node->of_children = std::move(ancestry);
    }
    return node->of_children;
}

}  // namespace stockade::enrich
