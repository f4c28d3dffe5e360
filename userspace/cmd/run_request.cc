#include "userspace/cmd/run_request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/contract/call.h"
#include "userspace/contract/quantity.h"
#include "userspace/launch/seccomp.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxSeccompBytes = 256 << 10;  // Docker's own profile is 15 KiB

// What the environment of a sandbox has in any case. Nothing else of the caller's: keys and
// tokens live there.
constexpr const char* kPassed[] = {"LANG", "LANGUAGE", "TERM", "TZ", "COLORTERM", "NO_COLOR"};

Status AddPolicy(const RunFlags& flags, api::Run* run) {
    if (flags.policy.empty()) return absl::OkStatus();
    if (!IsPolicyFile(flags.policy)) {
        run->mutable_policy()->set_name(flags.policy);
        return absl::OkStatus();
    }
    StatusOr<std::string> text = ReadFile(flags.policy, policy::kMaxYamlBytes);
    if (!text.ok()) return Annotate(text.status(), "--policy");
    if (text->empty())
        return absl::InvalidArgumentError(absl::StrCat("--policy: ", flags.policy, " is empty"));
    run->mutable_policy()->set_text(*std::move(text));
    run->mutable_policy()->set_filename(flags.policy);
    return absl::OkStatus();
}

Status AddLabels(const RunFlags& flags, api::Run* run) {
    api::Labels& labels = *run->mutable_labels();
    labels.set_session(flags.session);
    labels.set_tool(flags.tool);
    labels.set_trace(flags.trace);
    if (!flags.cause.empty()) (*labels.mutable_free())["cause"] = flags.cause;
    for (const std::string& label : flags.labels) {
        const size_t equals = label.find('=');
        if (equals == std::string::npos || equals == 0) {
            return absl::InvalidArgumentError(absl::StrCat("--label takes K=V, not ", label));
        }
        const std::string key = label.substr(0, equals);
        if (key == "cause" && !flags.cause.empty())
            return absl::InvalidArgumentError("--label cause=... and --cause say the same: give one of them");
        (*labels.mutable_free())[key] = label.substr(equals + 1);
    }
    return absl::OkStatus();
}

void AddEnvironment(const RunFlags& flags, api::Run* run) {
    std::vector<std::pair<std::string, std::string>> env = {
        {"PATH", contract::kPath},
        {"HOME", "/tmp"},
        {"TMPDIR", "/tmp"}};
    const auto set = [&env](const std::string& key, const std::string& value) {
        for (auto& [name, old] : env) {
            if (name == key) {
                old = value;
                return;
            }
        }
        env.emplace_back(key, value);
    };
    for (const char* name : kPassed) {
        if (const char* value = std::getenv(name)) set(name, value);
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        if (absl::StartsWith(text, "LC_"))
            set(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
    }
    for (const std::string& entry : flags.env) {
        const size_t equals = entry.find('=');
        if (equals != std::string::npos) {
            set(entry.substr(0, equals), entry.substr(equals + 1));
        } else if (const char* value = std::getenv(entry.c_str())) {
            set(entry, value);
        }
    }
    for (const auto& [key, value] : env) run->add_env(absl::StrCat(key, "=", value));
}

Status AddDirectory(const std::string& path, const char* flag, api::FdRole role, RunRequest* request) {
    if (path.empty()) return absl::OkStatus();
    StatusOr<Fd> fd = Fd::Open(path, O_RDONLY | O_DIRECTORY);
    if (role == api::FD_OUT && absl::IsNotFound(fd.status())) {
        return absl::NotFoundError(
            absl::StrCat(flag, ": there is no directory ", path, ": mkdir -p it first"));
    }
    if (!fd.ok()) return Annotate(fd.status(), flag);
    request->fds.emplace_back(role, *std::move(fd));
    return absl::OkStatus();
}

// SOURCE[:TARGET][:ro|:rw]
Status AddBinds(const RunFlags& flags, RunRequest* request) {
    for (const std::string& text : flags.binds) {
        std::vector<std::string> parts = absl::StrSplit(text, ':');
        api::Bind& bind = *request->run.add_binds();
        if (parts.size() > 1 && (parts.back() == "ro" || parts.back() == "rw")) {
            bind.set_writable(parts.back() == "rw");
            parts.pop_back();
        }
        if (parts.size() > 2 || parts[0].empty()) {
            return absl::InvalidArgumentError(absl::StrCat("--bind takes SOURCE[:TARGET][:rw], not ", text));
        }
        char real[PATH_MAX];
        if (realpath(parts[0].c_str(), real) == nullptr) {
            return absl::NotFoundError(absl::StrCat("--bind: ", parts[0], " does not exist"));
        }
        bind.set_source(real);
        bind.set_target(parts.size() == 2 ? parts[1] : std::string(real));
        SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(real, O_PATH));
        request->fds.emplace_back(api::FD_BIND, std::move(fd));
    }
    return absl::OkStatus();
}

}  // namespace

bool IsPolicyFile(const std::string& policy) {
    return absl::StrContains(policy, '/') || absl::EndsWith(policy, ".yaml") || absl::EndsWith(policy, ".yml");
}

Status CheckRunFlags(const RunFlags& flags) {
    if (!flags.approval.empty() && flags.contract.empty())
        return absl::InvalidArgumentError("--approval is for a run by --contract: what is approved is the contract, arguments, inputs and policy");
    if (!flags.empty.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            flags.empty.front(), " is given, and its value is empty: leave it out, or give one"));
    }
    if (flags.workdir.empty() || flags.workdir.front() != '/') {
        return absl::InvalidArgumentError(
            absl::StrCat("--workdir takes an absolute path inside the sandbox, not ", flags.workdir));
    }
    return absl::OkStatus();
}

StatusOr<RunRequest> MakeRunRequest(const RunFlags& flags) {
    RunRequest request;
    api::Run& run = request.run;
    for (const std::string& arg : flags.command) run.add_argv(arg);
    run.set_cwd(flags.workdir);
    SK_RETURN_IF_ERROR(AddPolicy(flags, &run));
    SK_RETURN_IF_ERROR(AddLabels(flags, &run));
    AddEnvironment(flags, &run);
    if (!flags.timeout.empty()) {
        const StatusOr<uint64_t> timeout = contract::ParseTime(flags.timeout);
        if (!timeout.ok()) return absl::InvalidArgumentError(absl::StrCat("--timeout takes ", timeout.status().message()));
        run.set_timeout_ns(*timeout);
    }
    if (!flags.out_size.empty()) {
        const StatusOr<uint64_t> size = contract::ParseSize(flags.out_size);
        if (!size.ok()) return absl::InvalidArgumentError(absl::StrCat("--out-size takes ", size.status().message()));
        run.set_out_bytes(*size);
    }
    if (!flags.seccomp.empty()) {
        StatusOr<std::string> json = ReadFile(flags.seccomp, kMaxSeccompBytes);
        if (!json.ok()) return Annotate(json.status(), "--seccomp");
        if (json->empty()) {
            return absl::InvalidArgumentError(absl::StrCat("--seccomp: ", flags.seccomp, " is empty"));
        }
        // Looked at here as well, where the file's name is known.
        if (const Status good = launch::OciProfile(*json).status(); !good.ok()) {
            const absl::string_view why = absl::StripPrefix(good.message(), "seccomp profile: ");
            const bool has_place = absl::ascii_isdigit(static_cast<unsigned char>(why[0]));
            return absl::InvalidArgumentError(
                absl::StrCat("--seccomp: ", flags.seccomp, has_place ? ":" : ": ", why));
        }
        run.set_seccomp_json(*std::move(json));
    }
    run.set_runtime(flags.runtime);
    run.set_require(flags.require);
    run.set_events(!flags.events.empty());
    run.set_caller_uid(getuid());
    run.set_caller_gid(getgid());
    SK_RETURN_IF_ERROR(AddDirectory(flags.in, "--in", api::FD_IN, &request));
    SK_RETURN_IF_ERROR(AddDirectory(flags.out, "--out", api::FD_OUT, &request));
    SK_RETURN_IF_ERROR(AddDirectory(flags.rootfs, "--rootfs", api::FD_ROOTFS, &request));
    SK_RETURN_IF_ERROR(AddBinds(flags, &request));
    return request;
}

}  // namespace stockade::cmd
