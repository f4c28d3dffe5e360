#include "userspace/cmd/k8s_command.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/k8s_inspect.h"
#include "userspace/k8s/doctor.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

constexpr int kFound = 1;
// A folder of manifests has hundreds; a home directory that was given by mistake ends here.
constexpr size_t kMaxManifests = 10'000;
// Names of objects are their makers': what is printed of them is cut here.
constexpr size_t kMaxPrinted = 4096;
constexpr char kResources[] =
    "ns,nodes,pods,jobs,cronjobs,deployments,statefulsets,daemonsets,networkpolicies,runtimeclasses,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings";

struct K8sFlags {
    std::vector<std::string> paths;
    std::string output = "text";
    bool strict = false;
};

std::string Printed(absl::string_view bytes) {
    std::string out;
    (void)model::AppendEscaped(bytes.substr(0, kMaxPrinted), &out);  // cut or not, it is for eyes
    return out;
}

bool IsManifest(const std::filesystem::path& path) {
    const std::string end = path.extension();
    return end == ".yaml" || end == ".yml" || end == ".json" || end == ".toml";
}

// Manifests below a folder, in order; links are not followed.
StatusOr<std::vector<std::string>> Manifests(const std::string& folder) {
    std::vector<std::string> files;
    std::error_code error;
    auto it = std::filesystem::recursive_directory_iterator(folder, error);
    for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
        if (!it->is_regular_file(error) || !IsManifest(it->path())) continue;
        files.push_back(it->path());
        if (files.size() > kMaxManifests)
            return absl::ResourceExhaustedError(absl::StrCat(folder, ": more than ", kMaxManifests, " manifests; is it the folder that was meant?"));
    }
    if (error) return absl::UnavailableError(absl::StrCat("read ", folder, ": ", error.message()));
    if (files.empty()) return absl::NotFoundError(absl::StrCat(folder, ": no .yaml, .yml, .json or .toml in it"));
    std::sort(files.begin(), files.end());
    return files;
}

Status ReadOne(const std::string& path, k8s::ObjectSet* set) {
    if (path == "-") {
        SK_ASSIGN_OR_RETURN(const std::string text, ReadAll(STDIN_FILENO, k8s::kMaxJsonBytes));
        return k8s::ReadObjects("-", text, set);
    }
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, k8s::kMaxJsonBytes));
    if (absl::EndsWith(path, ".toml")) {
        SK_ASSIGN_OR_RETURN(k8s::RuntimeConfig config, k8s::ReadRuntimeConfig(path, text));
        set->runtimes.push_back(std::move(config));
        return absl::OkStatus();
    }
    return k8s::ReadObjects(path, text, set);
}

Status ReadGiven(const std::vector<std::string>& paths, k8s::ObjectSet* set) {
    for (const std::string& path : paths) {
        std::error_code error;
        std::vector<std::string> files = {path};
        if (path != "-" && std::filesystem::is_directory(path, error)) {
            SK_ASSIGN_OR_RETURN(files, Manifests(path));
        }
        for (const std::string& file : files) SK_RETURN_IF_ERROR(ReadOne(file, set));
    }
    if (set->size() > 0 || !set->runtimes.empty()) return absl::OkStatus();
    // A verdict on nothing would read like a good one.
    return absl::NotFoundError(absl::StrCat("no Kubernetes object in what was given", set->skipped.empty() ? "" : absl::StrCat(" (", set->skipped[0], " is none)")));
}

std::string ToJson(const k8s::Diagnosis& diagnosis, const k8s::ObjectSet& set) {
    std::vector<std::string> findings, skipped;
    for (const k8s::Finding& finding : diagnosis.findings) {
        findings.push_back(JsonObject()
                               .Add("severity", std::string(k8s::SeverityName(finding.severity)))
                               .Add("check", finding.check)
                               .Add("object", finding.object)
                               .Add("what", finding.what)
                               .Add("cure", finding.cure)
                               .Done());
    }
    for (const std::string& one : set.skipped) skipped.push_back(JsonString(one));
    JsonObject out;
    out.Add("enforceable", diagnosis.Enforceable()).Add("objects", static_cast<uint64_t>(diagnosis.objects));
    out.Add("sandbox_pods", static_cast<uint64_t>(diagnosis.sandbox_pods));
    return out.AddRaw("findings", JsonArray(findings)).AddRaw("skipped", JsonArray(skipped)).Done() + "\n";
}

std::string ToText(const k8s::Diagnosis& diagnosis, const k8s::ObjectSet& set) {
    size_t width = 0;
    for (const k8s::Finding& finding : diagnosis.findings) width = std::max(width, std::min<size_t>(60, Printed(finding.object).size()));
    std::string out;
    if (!diagnosis.findings.empty())
        absl::StrAppendFormat(&out, "%-14s %-20s %-*s %s\n", "SEVERITY", "CHECK", static_cast<int>(width), "OBJECT", "WHAT, AND WHAT TO CHANGE");
    for (const k8s::Finding& finding : diagnosis.findings) {
        absl::StrAppendFormat(&out, "%-14s %-20s %-*s %s%s%s\n", k8s::SeverityName(finding.severity), finding.check, static_cast<int>(width),
                              Printed(finding.object), Printed(finding.what), finding.cure.empty() ? "" : ". ", finding.cure);
    }
    if (!diagnosis.findings.empty()) out += "\n";
    absl::StrAppend(&out, set.size(), " objects, ", diagnosis.sandbox_pods, " sandbox pods or templates: ",
                    diagnosis.findings.empty()  ? "nothing to say"
                    : diagnosis.Enforceable() ? "enforceable by what objects say"
                                              : "not enforceable",
                    "\n");
    if (!set.skipped.empty())
        absl::StrAppend(&out, set.skipped.size(), " documents are no Kubernetes objects, first ", Printed(set.skipped[0]), "\n");
    return out;
}

int Doctor(const K8sFlags& flags) {
    k8s::ObjectSet set;
    if (const Status read = ReadGiven(flags.paths, &set); !read.ok()) {
        LogError("k8s doctor: ", Printed(read.message()));
        return kOwnFailure;
    }
    const k8s::Diagnosis diagnosis = k8s::Diagnose(set, absl::ToUnixSeconds(absl::Now()));
    const Status shown = WriteAll(STDOUT_FILENO, flags.output == "json" ? ToJson(diagnosis, set) : ToText(diagnosis, set));
    if (!shown.ok()) {
        LogError("k8s doctor: ", shown.message());
        return kOwnFailure;
    }
    return !diagnosis.Enforceable() || (flags.strict && !diagnosis.findings.empty()) ? kFound : 0;
}

}  // namespace

void AddK8sCommand(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<K8sFlags>();  // lives as long as the callback below
    CLI::App* k8s = app.add_subcommand("k8s", "What a cluster's objects say about its sandboxes");
    k8s->require_subcommand(1);
    CLI::App* doctor = k8s->add_subcommand("doctor", "What there would make the pod of a sandbox unenforceable, or weaker than it could be");
    doctor->footer(absl::StrCat("  kubectl get ", kResources, " -A -o json | stockade k8s doctor -\n",
                                "  (where Kyverno is: validatingpolicies,policyexceptions as well)\n"
                                "  stockade k8s doctor deploy/kubernetes        manifests, before they are applied\n\n"
                                "It asks no API server, and knows what was given. Exit status: 0 enforceable by what objects say, 1 not (--strict: "
                                "or anything found), 125 something cannot be read."));
    doctor->add_option("PATH", flags->paths, "Manifests, JSON of kubectl, containerd's configuration (.toml): files, folders, - is standard input")->required();
    doctor->add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
    doctor->add_flag("--strict", flags->strict, "Exit 1 for any finding");
    doctor->callback([flags, &exit_code] { exit_code = Doctor(*flags); });

    auto inspect_flags = std::make_shared<InspectNamespace>();
    CLI::App* inspect = k8s->add_subcommand("inspect", "Evidence of a namespace, by kubectl, into a folder named by the UTC time");
    inspect->footer("Objects (without the values of environment variables), Kubernetes' events, logs, what the doctor finds, and manifest.json with each\n"
                    "file's digest. kubectl is run with your configuration. Exit status: 0 all is there, 1 something could not be had and the manifest\n"
                    "says what, 125 there is no folder.");
    inspect->add_option("NAMESPACE", inspect_flags->space, "Whose sandboxes it is about")->required();
    inspect->add_option("--out", inspect_flags->folder, "Where the folder is made (default .evidence)");
    inspect->add_option("--agents", inspect_flags->agents, "The namespace of the agent's pods (default stockade)");
    inspect->add_option("--kubectl", inspect_flags->kubectl, "The program that is run")->group("");
    auto inspect_output = std::make_shared<std::string>("text");
    inspect->add_option("-o,--output", *inspect_output, "text: the folder's path; json: the manifest")->check(CLI::IsMember({"text", "json"}));
    inspect->callback([inspect_flags, inspect_output, &exit_code] {
        inspect_flags->json = *inspect_output == "json";
        exit_code = InspectToFolder(*inspect_flags);
    });
}

}  // namespace stockade::cmd
