#include "userspace/cmd/k8s_inspect.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/json.h"
#include "userspace/k8s/doctor.h"
#include "userspace/k8s/evidence.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxToldBytes = 300;  // of what kubectl says of an error
// Of each container; a tool's whole output is its own business.
constexpr char kLogLines[] = "--tail=2000";
// An API server that hangs costs this for each of some dozen questions, and no more.
constexpr char kTimeout[] = "--request-timeout=30s";
// Pods whose logs are asked for: a namespace with more is told so.
constexpr size_t kMaxPodLogs = 200;

struct Piece {
    const char* file;
    const char* resources;
    bool of_cluster;
    bool needed;  // else: a kind that a cluster need not have
};
constexpr Piece kPieces[] = {
    {"pods.json", "pods", false, true},
    {"workloads.json", "jobs,cronjobs,deployments,statefulsets,daemonsets,replicasets", false, true},
    {"network-policies.json", "networkpolicies", false, true},
    {"kubernetes-events.json", "events", false, true},
    {"policies.json", "sandboxpolicies.stockade.dev", false, false},
    {"cluster-policies.json", "clustersandboxpolicies.stockade.dev", true, false},
    {"nodes.json", "nodes", true, true},
    {"runtime-classes.json", "runtimeclasses", true, true},
    {"admission.json", "validatingadmissionpolicies,validatingadmissionpolicybindings", true, true},
    {"kyverno.json", "validatingpolicies.policies.kyverno.io", true, false},
};

struct Got {
    std::string out;
    std::string errors;
    int status = -1;
};

// Reads both streams until both end.
Status Drain(const Fd& out, const Fd& errors, Got* got) {
    pollfd fds[] = {{out.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}};
    std::string* const texts[] = {&got->out, &got->errors};
    const size_t most[] = {k8s::kMaxJsonBytes, kMaxErrorBytes};
    char buffer[64 << 10];
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for kubectl");
        for (int i = 0; i < 2; ++i) {
            if (fds[i].fd < 0 || fds[i].revents == 0) continue;
            const ssize_t size = read(fds[i].fd, buffer, sizeof(buffer));
            if (size < 0 && errno == EINTR) continue;
            if (size <= 0) fds[i].fd = -1;
            else if (texts[i]->size() + static_cast<size_t>(size) <= most[i]) texts[i]->append(buffer, static_cast<size_t>(size));
            else if (i == 0) return absl::ResourceExhaustedError(absl::StrCat("kubectl says more than ", most[i], " bytes"));
        }
    }
    return absl::OkStatus();
}

StatusOr<Got> Kubectl(const InspectNamespace& wanted, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), wanted.kubectl);
    arguments.emplace_back(kTimeout);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int out[2], errors[2];
    if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd out_read(out[0]), out_write(out[1]);
    if (pipe2(errors, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd errors_read(errors[0]), errors_write(errors[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_write.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors_write.get(), STDERR_FILENO);
    pid_t child = -1;
    const int rc = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) return ErrnoStatus(rc, absl::StrCat("run ", wanted.kubectl));
    out_write.Reset();
    errors_write.Reset();
    Got got;
    const Status drained = Drain(out_read, errors_read, &got);
    out_read.Reset();  // what is not read any more ends the writer
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    got.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    SK_RETURN_IF_ERROR(drained);
    return got;
}

// The folder of one inspection, and the list of what is in it.
class Folder {
  public:
    explicit Folder(std::string path) : path_(std::move(path)) {}

    void Keep(const std::string& file, const std::string& how, const StatusOr<std::string>& content, bool needed) {
        JsonObject row;
        row.Add("file", file).Add("how", how).Add("got", content.ok());
        Status status = content.status();
        if (status.ok()) status = ReplaceFile(absl::StrCat(path_, "/", file), *content, 0600);
        if (status.ok()) row.Add("bytes", static_cast<uint64_t>(content->size())).Add("sha256", Sha256Hex(*content));
        else row.Add("why", Told(status.message()));
        if (!status.ok() && needed) missing_.push_back(absl::StrCat(file, ": ", Told(status.message())));
        rows_.push_back(row.Done());
    }
    const std::string& path() const { return path_; }
    const std::vector<std::string>& missing() const { return missing_; }
    std::string Manifest(const InspectNamespace& wanted, absl::Time time) const {
        JsonObject out;
        out.Add("namespace", wanted.space).Add("time", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()));
        return out.Add("complete", missing_.empty()).AddRaw("files", JsonArray(rows_)).Done() + "\n";
    }

  private:
    static std::string Told(absl::string_view text) {
        std::string out;
        (void)model::AppendEscaped(absl::StripAsciiWhitespace(text).substr(0, kMaxToldBytes), &out);  // cut or not, it is for eyes
        return out;
    }
    std::string path_;
    std::vector<std::string> rows_;
    std::vector<std::string> missing_;
};

StatusOr<std::string> Said(const InspectNamespace& wanted, const std::vector<std::string>& arguments) {
    SK_ASSIGN_OR_RETURN(Got got, Kubectl(wanted, arguments));
    if (got.status == 0) return std::move(got.out);
    return absl::UnavailableError(got.errors.empty() ? absl::StrCat("kubectl ended with ", got.status) : got.errors);
}

// Asks, keeps what is fit to be kept, and adds the objects to the set.
void Ask(const InspectNamespace& wanted, const std::string& file, const std::vector<std::string>& arguments, bool needed, Folder* folder, k8s::ObjectSet* set) {
    StatusOr<std::string> said = Said(wanted, arguments);
    if (said.ok()) said = k8s::Redacted(*said);
    if (said.ok()) {
        if (const Status read = k8s::ReadObjects(file, *said, set); !read.ok()) said = read;
    }
    folder->Keep(file, absl::StrCat("kubectl ", absl::StrJoin(arguments, " ")), said, needed);
}

void KeepLogs(const InspectNamespace& wanted, const k8s::ObjectSet& set, Folder* folder) {
    size_t asked = 0;
    for (const k8s::Object& pod : set.OfKind("Pod")) {
        if (pod.space() != wanted.space && pod.space() != wanted.agents) continue;
        if (++asked > kMaxPodLogs) {
            folder->Keep("logs", "", absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxPodLogs, " pods: the logs of the others were not asked for")), true);
            return;
        }
        const std::vector<std::string> arguments = {"logs", "-n", pod.space(), pod.name(), "--all-containers", "--timestamps", kLogLines};
        // Of a pod that has not started there are none, and that is no fault of the evidence.
        folder->Keep(absl::StrCat("log-", pod.space(), "-", pod.name(), ".txt"), absl::StrCat("kubectl ", absl::StrJoin(arguments, " ")),
                     Said(wanted, arguments), pod.Text("status.phase") != "Pending");
    }
}

StatusOr<std::string> MakeFolder(const InspectNamespace& wanted, absl::Time time) {
    if (mkdir(wanted.folder.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("make ", wanted.folder));
    const std::string path = absl::StrCat(wanted.folder, "/", absl::FormatTime("%Y%m%dT%H%M%SZ", time, absl::UTCTimeZone()));
    if (mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(errno, absl::StrCat("make ", path));
    return path;
}

std::string FindingsJson(const k8s::Diagnosis& diagnosis) {
    std::vector<std::string> rows;
    for (const k8s::Finding& finding : diagnosis.findings) {
        rows.push_back(JsonObject()
                           .Add("severity", std::string(k8s::SeverityName(finding.severity)))
                           .Add("check", finding.check)
                           .Add("object", finding.object)
                           .Add("what", finding.what)
                           .Done());
    }
    return JsonArray(rows) + "\n";
}

}  // namespace

int InspectToFolder(const InspectNamespace& wanted) {
    const absl::Time now = absl::Now();
    const StatusOr<std::string> path = MakeFolder(wanted, now);
    if (!path.ok()) {
        LogError("k8s inspect: ", path.status().message());
        return kOwnFailure;
    }
    Folder folder(*path);
    k8s::ObjectSet set;
    Ask(wanted, "namespace.json", {"get", "namespace", wanted.space, "-o", "json"}, true, &folder, &set);
    for (const Piece& piece : kPieces) {
        std::vector<std::string> arguments = {"get", piece.resources, "-o", "json"};
        if (!piece.of_cluster) arguments.insert(arguments.end(), {"-n", wanted.space});
        Ask(wanted, piece.file, arguments, piece.needed, &folder, &set);
    }
    Ask(wanted, "agent.json", {"get", "daemonsets,pods", "-n", wanted.agents, "-o", "json"}, true, &folder, &set);
    KeepLogs(wanted, set, &folder);
    folder.Keep("summary.json", "of pods.json", k8s::PodSummary(set), true);
    folder.Keep("doctor.json", "stockade k8s doctor", FindingsJson(k8s::Diagnose(set, absl::ToUnixSeconds(now))), true);
    const std::string manifest = folder.Manifest(wanted, now);
    const std::string shown = wanted.json ? manifest : absl::StrCat(*path, "\n");
    Status status = ReplaceFile(absl::StrCat(*path, "/manifest.json"), manifest, 0600, Synced::kYes);
    if (status.ok()) status = WriteAll(STDOUT_FILENO, shown);
    if (!status.ok()) {
        LogError("k8s inspect: ", status.message());
        return kOwnFailure;
    }
    for (const std::string& missing : folder.missing()) LogWarning("k8s inspect: not had: ", missing);
    return folder.missing().empty() ? 0 : 1;
}

}  // namespace stockade::cmd
