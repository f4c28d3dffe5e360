#include "userspace/cmd/doctor_command.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/cmd/doctor_report.h"
#include "userspace/kernel/pins.h"
#include "userspace/kernel/probe_pins.h"

namespace stockade {
namespace {

constexpr int kFailed = 125;

struct DoctorFlags {
    std::string output = "text";
    std::vector<std::string> require;
    bool clean = false;
    // Empty = as the configuration says, so that what is cleaned is what the agent complained of.
    std::string pin_dir;
    std::string agent_socket;
};

Status FillFromConfig(const cmd::ClientOptions& client, DoctorFlags* flags) {
    SK_ASSIGN_OR_RETURN(const cmd::Config config,
                        cmd::LoadConfig(client.config_path, client.config_path != cmd::kDefaultConfigPath));
    if (flags->pin_dir.empty()) flags->pin_dir = config.pin_dir;
    if (flags->agent_socket.empty()) {
        flags->agent_socket = client.socket.empty() ? config.socket_path() : client.socket;
    }
    return absl::OkStatus();
}

bool WantsColours() {
    const char* term = std::getenv("TERM");
    return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr && term != nullptr &&
           std::strcmp(term, "dumb") != 0;
}

bool AgentAnswers(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return false;
    std::memcpy(address.sun_path, path.data(), path.size());
    for (int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
        Fd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
        if (fd.ok() && connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
            return true;
        }
    }
    return false;
}

bool Show(const std::string& text) {
    const Status written = WriteAll(STDOUT_FILENO, text);
    if (!written.ok()) (void)cmd::Complain(Annotate(written, "standard output"));
    return written.ok();
}

int Clean(const DoctorFlags& flags) {
    auto stale = kernel::FindStalePins(flags.pin_dir, kernel::kPinAbi);
    if (!stale.ok()) {
        LogError("doctor --clean: ", stale.status().message());
        return kFailed;
    }
    if (!stale->empty() && AgentAnswers(flags.agent_socket)) {
        LogError("doctor --clean: an agent runs on ", flags.agent_socket, ": stop it first");
        return kFailed;
    }
    Status removed = stale->empty() ? absl::OkStatus()
                                    : kernel::RemoveStalePins(flags.pin_dir, *stale);
    if (!removed.ok()) {
        LogError("doctor --clean: ", removed.message());
        return kFailed;
    }
    std::string out;
    for (const auto& one : *stale) {
        absl::StrAppend(&out, "removed ", flags.pin_dir, "/", one.name, ", ", one.reason, "\n");
    }
    if (out.empty()) out = absl::StrCat("nothing stale in ", flags.pin_dir, "\n");
    return Show(out) ? 0 : kFailed;
}

int Doctor(const cmd::ClientOptions& client, DoctorFlags flags) {
    if (flags.clean) {
        const Status filled = FillFromConfig(client, &flags);
        if (filled.ok()) return Clean(flags);
        LogError("doctor --clean: ", filled.message());
        return kFailed;
    }
    auto report = kernel::Probe({});
    if (!report.ok()) {
        LogError("doctor: ", report.status().message());
        return kFailed;
    }
    Diagnosis diagnosis = Diagnose(*std::move(report), flags.require);
    std::string out = flags.output == "json" ? DoctorJson(diagnosis)
                                             : DoctorText(diagnosis, WantsColours());
    if (!Show(out)) return kFailed;
    return ExitCodeOf(diagnosis);
}

std::vector<std::string> Requirable() {
    std::vector<std::string> names = {"lsm", "signal"};
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        names.emplace_back(InfoOf(static_cast<model::Feature>(i)).name);
    }
    return names;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, const cmd::ClientOptions& client, int& exit_code) {
    auto flags = std::make_shared<DoctorFlags>();  // lives as long as the callback below
    CLI::App* doctor = app.add_subcommand(
        "doctor", "What this host can enforce, what it can only see, and how to get more");
    doctor->add_option("-o,--output", flags->output, "text or json")
        ->check(CLI::IsMember({"text", "json"}));
    doctor
        ->add_option("--require", flags->require,
                     "exit 1 unless this is there: lsm, signal or a feature of the table")
        ->check(CLI::Validator(
            [names = Requirable()](std::string& name) {
                return std::find(names.begin(), names.end(), name) != names.end()
                           ? std::string()
                           : absl::StrCat("unknown: ", name, " (lsm, signal or a feature's name)");
            },
            "NAME"));
    doctor->add_flag("--clean", flags->clean,
                     "remove pins of another version's abi and unfinished ones");
    doctor->add_option("--pin-dir", flags->pin_dir, "where the agent pins")->group("");
    doctor->add_option("--agent-socket", flags->agent_socket, "the agent's socket")->group("");
    doctor->callback([flags, &client, &exit_code] { exit_code = Doctor(client, *flags); });
}

}  // namespace stockade
