#include "tests/lifecycle/call.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::tests {
namespace fs = std::filesystem;

Tool::Tool(const std::string& spec, const std::string& config) : product(config) {
    product.Put("tool.yaml",
                "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: tool}\nspec:\n"
                "  exec: {allow: [/usr/**, /bin/**], deny: [\"**/perl\"]}\n  files: {read: [/usr/**, /bin/**, /in/**], write: [/out/**, /tmp/**]}\n  network: {}\n");
    WriteContract(spec);
    in = product.Path("in");
    out = product.Path("out");
    fs::create_directories(in);
    fs::create_directories(out);
    mounts_ = ReadText("/proc/self/mounts");
}

void Tool::WriteContract(const std::string& spec) {
    product.Put("contract.yaml", absl::StrCat("apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: tool}\nspec:\n  class: sandbox\n"
                                              "  command: {allow: [/usr/**, /bin/**], deny_arguments: [forbidden]}\n  policy: tool.yaml\n  timeout: 60s\n", spec));
}

Ran Tool::Sh(const std::string& script, const std::vector<std::string>& flags) { return Call({"/bin/sh", "-c", script}, flags); }

Ran Tool::Call(const std::vector<std::string>& command, const std::vector<std::string>& flags) {
    const std::string tag = absl::StrCat("call", ++count_);
    return Finish(Start(command, flags, tag), tag);
}

pid_t Tool::Start(const std::vector<std::string>& command, const std::vector<std::string>& flags, const std::string& tag) {
    std::vector<std::string> words = {"run", "--contract", product.Path("contract.yaml"), "--result", product.Path(tag + ".json")};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return product.StartStockade(words, tag);
}

std::vector<std::string> Tool::Out() const {
    std::vector<std::string> rows;
    for (const auto& entry : fs::recursive_directory_iterator(out)) {
        const std::string name = entry.path().lexically_relative(out);
        rows.push_back(entry.is_regular_file() ? absl::StrCat(name, "=", ReadText(entry.path())) : name + "/");
    }
    std::sort(rows.begin(), rows.end());
    return rows;
}

std::string Tool::WhatExists(pid_t client) const {
    std::string found;
    if (product.AgentPid() != 0) found += "an agent; ";
    if (fs::exists(product.Cgroup())) found += "a cgroup; ";
    if (fs::exists(product.pin_dir())) found += "pins; ";
    if (ReadText("/proc/self/mounts") != mounts_) found += "a mount; ";
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string pid = entry.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(client)) continue;
        if (absl::StrContains(ReadText(entry.path() / "cmdline"), product.dir())) absl::StrAppend(&found, "process ", pid, "; ");
        const std::vector<std::string> stat = absl::StrSplit(ReadText(entry.path() / "stat"), ' ');
        if (client != 0 && stat.size() > 3 && stat[3] == std::to_string(client)) absl::StrAppend(&found, "child ", pid, "; ");
    }
    for (const char* kind : {"net", "mnt", "pid", "user", "ipc", "uts", "cgroup"}) {
        std::error_code gone;
        const auto ours = fs::read_symlink(absl::StrCat("/proc/self/ns/", kind)), theirs = fs::read_symlink(absl::StrCat("/proc/", client, "/ns/", kind), gone);
        if (!gone && ours != theirs) absl::StrAppend(&found, "a namespace (", kind, "); ");
    }
    return found;
}

}  // namespace stockade::tests
