// `stockaded --check` as whoever writes the configuration runs it, root or not.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"

namespace stockade {
namespace {

using testing::HasSubstr;

struct Ran {
    int status;
    std::string text;
};

class CheckCommandTest : public testing::Test {
  protected:
    CheckCommandTest() {
        char name[] = "/tmp/check_test_XXXXXX";
        root_ = mkdtemp(name);
        std::filesystem::permissions(root_, std::filesystem::perms(0755));
    }
    ~CheckCommandTest() override { std::filesystem::remove_all(root_); }
    Ran Check(const std::string& config) {
        std::ofstream(root_ + "/config.yaml") << config;
        return RunFile(root_ + "/config.yaml");
    }
    static Ran RunFile(const std::string& path) {
        // As nobody, where we may become that.
        const std::string as = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
        FILE* pipe = popen(absl::StrCat(as, getenv("STOCKADE_BIN_DIR"), "/stockaded --check --config ", path, " 2>&1").c_str(), "re");
        Ran ran{0, *ReadAll(fileno(pipe), 1 << 20)};
        ran.status = WEXITSTATUS(pclose(pipe));
        return ran;
    }
    std::string root_;
};

TEST_F(CheckCommandTest, SaysWhatIsWrongByStatusAndText) {
    Ran ran = Check("kills_per_minute: 3\n");
    EXPECT_EQ(ran.status, 0) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("config.yaml: ok\n"));

    ran = Check("events:\n  exporters:\n    - {kind: jsonl, path: /var/log/stockade/events.jsonl, format: ocsf}\n"
                "    - {kind: kafka, hostport: \"a:9092,b:9092\", topic: node, compression: lz4}\n");
    EXPECT_EQ(ran.status, 0) << ran.text;

    ran = Check("events:\n  exporters:\n    - {kind: kafka, hostport: a, sasl: PLAIN, username: u, password: hunter2}\n");
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("config.yaml:3:"), HasSubstr("passwordfile"), HasSubstr("ok, with 2 warnings"),
                                         testing::Not(HasSubstr("hunter2"))));

    for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
             {"events:\n  exporters:\n    - {kind: kafka}\n", "config.yaml:3:7: exporter kafka: hostport is missing"},
             {"events:\n  exporters:\n    - kind: kafka\n      hostprt: a\n", "config.yaml:4:7: unknown key hostprt"},
             {"events:\n  exporters:\n    - {kind: jsonl, path: x}\n", "path is an absolute path"},
             {"runtime_dir: x\n", "config.yaml:1:14: runtime_dir takes an absolute path"},
         }) {
        ran = Check(text);
        EXPECT_EQ(ran.status, 1) << text << ran.text;
        EXPECT_THAT(ran.text, HasSubstr(expected));
    }
    EXPECT_EQ(RunFile("/nonexistent/config.yaml").status, 1);
}

TEST_F(CheckCommandTest, RulesAreReadAsTheAgentReadsThem) {
    std::filesystem::create_directories(root_ + "/rules");
    const std::string config = absl::StrCat("rules: {dirs: [", root_, "/rules]}\n");
    const std::string rule = "title: A\nname: a\nlevel: low\nlogsource: {product: linux, category: file_access}\n"
                             "detection:\n  selection: {TargetFilename: /x}\n  condition: selection\n";
    std::ofstream(root_ + "/rules/a.yaml") << rule;
    Ran ran = Check(config);
    EXPECT_EQ(ran.status, 0) << ran.text;
    ran = Check(absl::StrCat("rules: {dirs: [", root_, "/rules], disable: [nobody]}\n"));
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("no rule has the id or name 'nobody'"));
    std::ofstream(root_ + "/rules/b.yaml") << "title: B\nname: b\nlevel: low\nlogsource: {product: linux, category: file_access}\n"
                                              "detection:\n  selection: {TargetFilname: /x}\n  condition: selection\n";
    ran = Check(config);
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("b.yaml:6:"), HasSubstr("did you mean 'TargetFilename'")));
    EXPECT_EQ(Check(absl::StrCat("rules: {enabled: false, dirs: [", root_, "/rules]}\n")).status, 0);
}

}  // namespace
}  // namespace stockade
