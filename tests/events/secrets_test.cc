// A planted secret is in nothing that leaves the event's path: spool files, native JSON, OCSF, headers.
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "exporters/format/format.h"
#include "userspace/base/fd.h"
#include "userspace/decode/redact.h"
#include "userspace/decode/redact_secrets.h"
#include "userspace/model/json.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade {
namespace {

using decode::PlantedSecret;

// As arguments, in the environment that env(1) sets, as a file's name, and behind what asks for a name.
std::vector<v1::Event> Plant(const PlantedSecret& planted) {
    v1::Event exec = pipeline::Telemetry("sbx_1", 1);
    for (const std::string& argument :
         {std::string("env"), "X=" + planted.text, std::string("sh"), "run " + planted.text}) {
        exec.mutable_exec()->add_argv(argument);
        exec.mutable_process()->add_argv(argument);
    }
    v1::Event file = pipeline::Violation("sbx_1", 2);
    file.mutable_file()->set_path("/out/" + planted.text);
    file.set_reason("the policy does not allow: /out/" + planted.text);
    std::vector<v1::Event> events = {exec, file};
    if (planted.text == planted.secret) {
        v1::Event dns = pipeline::Violation("sbx_1", 3);
        dns.mutable_dns()->set_name(absl::AsciiStrToLower(planted.secret) + ".evil.example");
        dns.set_reason("the policy does not allow the name: " + dns.dns().name());
        events.push_back(dns);
    }
    return events;
}

class SecretsTest : public pipeline::SpoolTest {
  protected:
    // All files of the spool, in one text without regard to case.
    std::string Files() const {
        std::string all;
        for (const auto& entry : std::filesystem::directory_iterator(options_.dir))
            all += *ReadFile(entry.path(), 64 << 20);
        return absl::AsciiStrToLower(all);
    }
    static std::string Outputs(const v1::Event& event) {
        std::string all = model::ToJsonLine(event);
        const std::string serialised = event.SerializeAsString();
        const model::EventBytes bytes = *model::EventBytes::Of(serialised);
        for (const auto format : {exporters::Format::kNative, exporters::Format::kOcsf}) {
            EXPECT_TRUE(exporters::AppendAs(format, bytes, &all).ok());
            for (const auto& [name, value] : exporters::CloudEventHeaders(bytes, format)) all += value;
        }
        return absl::AsciiStrToLower(all);
    }
};

TEST_F(SecretsTest, APlantedSecretIsInNoOutput) {
    options_.max_bytes = 16 << 20;
    options_.segment_bytes = 4 << 20;
    auto spool = Open();
    const auto secrets = decode::PlantedSecrets();
    int events = 0;
    for (const PlantedSecret& planted : secrets) {
        // `--client-secret=x` is an argument of its own; within a sentence it is a variable.
        for (v1::Event event : Plant(planted)) {
            event.set_kernel_seq(static_cast<uint64_t>(++events));
            const bool control = absl::StrContains(Outputs(event), absl::AsciiStrToLower(planted.secret));
            EXPECT_TRUE(control || planted.pattern == "json-member")
                << planted.pattern << ": was not planted";
            EXPECT_GT(decode::Redactor::Default().Redact(&event), 0) << planted.text;
            ASSERT_TRUE(spool->Append(&event).ok());
            EXPECT_FALSE(absl::StrContains(Outputs(event), absl::AsciiStrToLower(planted.secret)))
                << planted.pattern << Outputs(event);
        }
    }
    ASSERT_TRUE(spool->Sync().ok());
    const std::string files = Files();
    EXPECT_GT(files.size(), 10'000u);
    for (const PlantedSecret& planted : secrets) {
        EXPECT_FALSE(absl::StrContains(files, absl::AsciiStrToLower(planted.secret))) << planted.pattern;
    }
    EXPECT_GT(events, 100);
}

}  // namespace
}  // namespace stockade
