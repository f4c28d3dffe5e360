#include "userspace/contract/job.h"

#include <gmock/gmock.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/contract/json_value.h"
#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"
#include "userspace/contract/yaml_json.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

const char kDigest[] = "registry.example/tools/exec-skill@sha256:1c4eef651f65e2f7daee7ee785882ac164b02b78fb74503052a26dc061c90474";

ToolContract Contract(const std::string& more = "") {
    auto contract = ParseOne("c", absl::StrCat("apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: exec_skill}\nspec: {class: sandbox, policy: networkless, timeout: 5m, "
                                               "command: {allow: [/usr/bin/tool], deny_arguments: ['rm -rf']}, inputs: [{path: job.py, max_size: 1MiB}]", more, "}\n"));
    EXPECT_TRUE(contract.ok()) << contract.status();
    return contract.ok() ? *std::move(contract) : ToolContract();
}

JobRequest Request() {
    return {.argv = {"/usr/bin/tool", "--in", "/in", "--out", "/out"},
            .image = kDigest,
            .session = "sess_123",
            .trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            .input = "tool-input"};
}

JsonValue Read(const std::string& yaml) {
    std::vector<policy::Diagnostic> diagnostics;
    const auto documents = policy::ReadYaml("job", yaml, diagnostics);
    for (const policy::Diagnostic& diagnostic : diagnostics) ADD_FAILURE() << policy::ToString(diagnostic);
    StatusOr<JsonValue> value = ParseJsonValue(documents.empty() ? "{}" : JsonOfYaml(*documents[0]), {});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? *std::move(value) : JsonValue();
}

JsonValue Rendered(const ToolContract& contract, const JobRequest& request) {
    const StatusOr<JobText> job = RenderJob(contract, request);
    EXPECT_TRUE(job.ok()) << job.status();
    return Read(job.ok() ? job->yaml : "{}");
}

JsonValue Pod(const JsonValue& job) { return job.at("spec").at("template").at("spec"); }

// The one that the admission policies are tested with. Ours says the program, which an image may leave to itself.
TEST(Job, IsTheShippedOneFilledIn) {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    ASSERT_NE(source, nullptr) << "run it by ./dev test unit";
    const StatusOr<std::string> file = ReadFile(absl::StrCat(source, "/deploy/kubernetes/tool-call-job.yaml"), 1 << 16);
    ASSERT_TRUE(file.ok()) << file.status();
    JsonValue shipped = Read(*file);
    JsonValue& container = shipped["spec"]["template"]["spec"]["containers"][0];
    container.erase("args");
    container["command"] = {"/usr/bin/tool", "--in", "/in", "--out", "/out"};
    container["resources"]["limits"]["cpu"] = "1000m";
    EXPECT_EQ(Rendered(Contract(), Request()), shipped);
}

TEST(Job, LimitsAreTheContracts) {
    const JsonValue job = Rendered(Contract(", limits: {memory: 64MiB, cpu_percent: 5, out_size: 3KiB}"), Request());
    const JsonValue pod = Pod(job), resources = pod.at("containers")[0].at("resources");
    EXPECT_EQ(pod.at("activeDeadlineSeconds"), 300);
    EXPECT_EQ(job.at("spec").at("activeDeadlineSeconds"), 300);
    EXPECT_EQ(resources.at("limits").at("memory"), "64Mi");
    EXPECT_EQ(resources.at("requests").at("memory"), "64Mi") << "no more is asked for than may be had";
    EXPECT_EQ(resources.at("limits").at("cpu"), "50m");
    EXPECT_EQ(resources.at("requests").at("cpu"), "50m");
    EXPECT_EQ(pod.at("volumes")[1].at("emptyDir").at("sizeLimit"), 3072);
}

TEST(Job, WordsArriveAsTheyAre) {
    JobRequest request = Request();
    request.argv = {"/usr/bin/tool", "$(HOME) $$ x", "a: b # c", "\"'\n\t\\", "- ]", "\xe2\x80\xa8\xef\xbb\xbf\x7f\xc2\x85\xf0\x9f\x98\x80", ""};
    const JsonValue words = Pod(Rendered(Contract(), request)).at("containers")[0].at("command");
    ASSERT_EQ(words.size(), request.argv.size());
    EXPECT_EQ(words[1], "$$(HOME) $$$$ x") << "the kubelet makes one dollar of two, and expands nothing";
    for (size_t i = 2; i < words.size(); ++i) EXPECT_EQ(words[i], request.argv[i]) << i;
}

TEST(Job, ACallThatTheContractRefusesIsNone) {
    JobRequest request = Request();
    request.argv = {"/bin/sh"};
    EXPECT_EQ(RefusalCode(RenderJob(Contract(), request).status()), "contract.command");
    request.argv = {"/usr/bin/tool", "rm", "-rf"};
    EXPECT_EQ(RefusalCode(RenderJob(Contract(), request).status()), "contract.argument");
}

TEST(Job, WhatCannotBeSaidIsAnError) {
    const auto why = [](const std::function<void(JobRequest&)>& change, const std::string& more = "") {
        JobRequest request = Request();
        change(request);
        const StatusOr<JobText> job = RenderJob(Contract(more), request);
        return job.ok() ? "rendered" : std::string(job.status().message());
    };
    EXPECT_EQ(why([](JobRequest&) {}), "rendered");
    EXPECT_THAT(why([](JobRequest& r) { r.image = "registry.example/tool:latest"; }), HasSubstr("@sha256:"));
    EXPECT_THAT(why([](JobRequest& r) { r.image = absl::StrCat("a\n", kDigest); }), HasSubstr("the image cannot"));
    EXPECT_THAT(why([](JobRequest& r) { r.session = ""; }), HasSubstr("the session is missing"));
    EXPECT_THAT(why([](JobRequest& r) { r.session = std::string(64, 'a'); }), HasSubstr("at most 63"));
    EXPECT_THAT(why([](JobRequest& r) { r.session = "a\n  x: y"; }), HasSubstr("the session"));
    EXPECT_THAT(why([](JobRequest& r) { r.trace = "00-1-2-3"; }), HasSubstr("traceparent"));
    EXPECT_THAT(why([](JobRequest& r) { r.trace = "00-" + std::string(32, '0') + "-b7ad6b7169203331-01"; }), HasSubstr("traceparent")) << "an agent refuses a pod with it";
    EXPECT_THAT(why([](JobRequest& r) { r.trace = ""; }), HasSubstr("the trace is missing"));
    EXPECT_THAT(why([](JobRequest& r) { r.space = "a b"; }), HasSubstr("the namespace"));
    EXPECT_THAT(why([](JobRequest& r) { r.runtime = "native"; }), HasSubstr("gvisor"));
    EXPECT_THAT(why([](JobRequest& r) { r.input = ""; }), HasSubstr("name the ConfigMap"));
    EXPECT_THAT(why([](JobRequest& r) { r.argv.push_back("\xff"); }), HasSubstr("UTF-8"));
    EXPECT_THAT(why([](JobRequest& r) { r.argv.push_back(std::string("a\0b", 3)); }), HasSubstr("UTF-8"));
}

TEST(Job, WhatIsNotKeptIsTold) {
    const StatusOr<JobText> job = RenderJob(Contract(", approval: required, require: lsm, limits: {pids: 9}"), Request());
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->notes.size(), 3u);
    EXPECT_THAT(job->notes[0], HasSubstr("approval"));
    EXPECT_TRUE(RenderJob(Contract(), Request())->notes.empty());
}

}  // namespace
}  // namespace stockade::contract
