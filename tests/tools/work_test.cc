// The other shipped policies, each with the real tools that it is for. A refusal of honest work is a bug of the policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Work : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { product_ = new Product; }
    static void TearDownTestSuite() {
        delete product_;
        product_ = nullptr;
    }
    static Ran Run(const std::string& policy, const std::vector<std::string>& command,
                   std::vector<std::string> flags = {}) {
        std::filesystem::create_directories(product_->Path("in"));
        std::filesystem::create_directories(product_->Path("out"));
        flags.insert(flags.end(), {"--in", product_->Path("in"), "--out", product_->Path("out")});
        return product_->Run(SourcePath("rules/policies/" + policy + ".yaml"), command, flags);
    }
    static inline Product* product_;
};

TEST_F(Work, NpmTestOfASmallPackage) {
    ASSERT_NE(FindProgram("npm"), "") << "./dev setup installs it";
    product_->Put("in/pkg/package.json",
                  R"({"name": "tiny", "version": "1.0.0", "bin": {"answer": "answer.js"},
                      "scripts": {"test": "node test.js && echo \"$npm_package_name is fine\""}})");
    product_->Put("in/pkg/answer.js", "module.exports = 40 + 2;\n");
    product_->Put("in/pkg/test.js",
                  "require('assert').strictEqual(require('./answer'), 42);\n"
                  "require('fs').writeFileSync('/out/report.txt', 'passed\\n');\n");
    // Else npm looks for a newer npm, on the network, and is refused that.
    const Ran ran = Run("node-tool", {"npm", "test"},
                        {"--workdir", "/in/pkg", "--env", "npm_config_update_notifier=false"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, EndsWith("tiny is fine\n"));
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_EQ(product_->Get("out/report.txt"), "passed\n");
}

TEST_F(Work, NpmInstallsFromALocalFolder) {
    product_->Put("in/dep/package.json", R"({"name": "dep", "version": "1.0.0", "main": "index.js"})");
    product_->Put("in/dep/index.js", "module.exports = 42;\n");
    const Ran ran =
        Run("node-tool",
            {"sh", "-c",
             "mkdir /tmp/app && cd /tmp/app && echo '{\"name\": \"app\", \"version\": \"1.0.0\"}' "
             ">package.json && npm install --offline --no-audit --no-fund --install-links /in/dep "
             "&& node -p 'require(\"dep\")'"},
            {"--env", "npm_config_update_notifier=false"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, EndsWith("42\n"));
    EXPECT_THAT(ran.Refusals(), IsEmpty());
}

// A repository as a caller has it: owned by somebody else than the sandbox's uid.
void MakeRepository(Product& product) {
    product.Put(
        "in/repo/hello.c",
        "#include <math.h>\n#include <stdio.h>\n"
        "int main(int argc, char** argv) { (void)argv; printf(\"%.0f\\n\", sqrt(1763.0 + argc)); }\n");
    product.Put("in/repo/Makefile",
                "CFLAGS = -O2 -Wall -Werror\nLDLIBS = -lm\nall: hello\nhello: hello.o\n"
                "test: hello\n\t./hello | grep -qx 42\n");
    const std::string script = absl::StrCat(
        "cd ", product.Path("in/repo"), " && git init -q -b main . && git add . && ",
        "git -c user.name=test -c user.email=test@example.org commit -q -m one && chmod -R a+rX .");
    ASSERT_EQ(
        Wait(Start({.argv = {"/bin/sh", "-c", script}, .out = "/dev/null", .err = product.Path("git.err")})),
        0)
        << product.Get("git.err");
}

TEST_F(Work, CloneCompileTestAndRun) {
    MakeRepository(*product_);
    const Ran ran =
        Run("build-tool", {"sh", "-ec",
                           "git clone -q /in/repo /tmp/build; cd /tmp/build; git log --oneline | wc -l\n"
                           "make -j2 -s all test; ./hello; strip hello; cp hello /out/; /out/hello"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "1\n42\n42\n");
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_TRUE(std::filesystem::is_regular_file(product_->Path("out/hello")));
}

TEST_F(Work, ArchivesDatabasesAndJson) {
    for (const char* name : {"tar", "sqlite3", "jq"})
        ASSERT_NE(FindProgram(name), "") << "./dev setup installs " << name;
    product_->Put("in/values.json", "{\"values\": [1, 2, 39]}\n");
    const Ran ran =
        Run("shell-tool",
            {"bash", "-euc",
             "set -o pipefail; cd /tmp; cp /in/values.json .\n"
             "tar czf /out/values.tgz values.json; rm values.json; tar xzf /out/values.tgz\n"
             "jq -r '.values[]' values.json >rows\n"
             "sqlite3 /tmp/t.db 'create table t(x integer)' '.import rows t' 'select sum(x) from t'\n"
             "find /usr/share/doc -maxdepth 1 | sort | awk 'NR==1' | grep -c doc; sed -n 1p values.json | wc "
             "-c"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("42\n1\n"));
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_TRUE(std::filesystem::is_regular_file(product_->Path("out/values.tgz")));
}

TEST_F(Work, ProcessesAreListed) {
    const Ran ran =
        Run("shell-tool", {"bash", "-ec", "ps aux | grep -c 'ps aux'; ps -ef >/tmp/list; test -s /tmp/list"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.Refusals(), IsEmpty());
}

TEST_F(Work, AnythingRunsWithoutANetwork) {
    const Ran ran = Run("networkless",
                        {"sh", "-ec", "id -u >/out/uid; python3 -c 'print(6*7)'; ls / | wc -l >/dev/null"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_GT(std::stoul(product_->Get("out/uid")), 65535u);
}

TEST_F(Work, DenyAllRefusesEvenTrue) {
    for (const char* program : {"/usr/bin/true", "/bin/sh", "/usr/bin/python3"}) {
        const Ran ran = Run("deny-all", {program, "-c", "echo ran; echo ran >/out/ran"});
        EXPECT_NE(ran.status, 0) << ran.Text();
        EXPECT_EQ(ran.out, "");
        EXPECT_THAT(ran.err, Not(IsEmpty()));
        EXPECT_FALSE(std::filesystem::exists(product_->Path("out/ran")));
    }
}

// `stockade run` without a policy says which one it took.
TEST_F(Work, WithoutAPolicyItIsNetworkless) {
    const Ran ran = product_->Stockade({"run", "--", "/bin/echo", "42"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_THAT(ran.err, HasSubstr("networkless"));
}

}  // namespace
}  // namespace stockade::tests
