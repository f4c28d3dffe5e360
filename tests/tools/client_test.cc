// The Python client, installed by pip into a fresh environment without a network, against a real agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;

class PythonClient : public ::testing::Test {
  protected:
    // Its own network namespace has no way out, so what pip would fetch it cannot have.
    int Shell(const std::string& script, const std::string& tag) {
        const pid_t pid = Start({.argv = {"/usr/bin/unshare", "-n", "/bin/sh", "-ec", script}, .out = product_.Path(tag + ".out"),
                                 .err = product_.Path(tag + ".err")});
        return Wait(pid);
    }
    Product product_;
};

TEST_F(PythonClient, IsInstalledByPipAndRunsTools) {
    const std::string environment = product_.Path("venv"), source = SourcePath("deploy/python");
    ASSERT_EQ(Shell("python3 -m venv " + environment + " && " + environment + "/bin/pip install --no-input " + source, "pip"), 0)
        << product_.Get("pip.err") << product_.Get("pip.out");
    EXPECT_EQ(product_.Stockade({"run", "-q", "-p", "python-tool", "--", "/usr/bin/true"}).status, 137) << "starts the agent outside of that namespace";
    setenv("STOCKADE", BinPath("stockade").c_str(), 1);
    setenv("STOCKADE_CONFIG", product_.config().c_str(), 1);
    const pid_t pid = Start({.argv = {environment + "/bin/python3", source + "/tests/client_test.py", "-v"}, .out = product_.Path("t.out"),
                             .err = product_.Path("t.err")});
    EXPECT_EQ(Wait(pid), 0) << product_.Get("t.err") << product_.Get("t.out");
    EXPECT_THAT(product_.Get("t.err"), HasSubstr("Ran 8 tests"));
    // The example of the README, as it stands there.
    const std::string readme = ReadText(source + "/README.md");
    const size_t begin = readme.find("```python\n") + 10;
    std::string example = readme.substr(begin, readme.find("```", begin) - begin);
    const std::string asked = "Sandbox(policy=\"python-tool\"";
    ASSERT_THAT(example, HasSubstr(asked));
    example.insert(example.find(asked) + 8, "binary='" + BinPath("stockade") + "', config='" + product_.config() + "', ");
    const pid_t shown = Start({.argv = {environment + "/bin/python3", "-c", example}, .out = product_.Path("e.out"), .err = product_.Path("e.err")});
    EXPECT_EQ(Wait(shown), 0) << product_.Get("e.err");
    EXPECT_EQ(product_.Get("e.out"), "b'42\\n' 0\n");
}

TEST_F(PythonClient, TheSameFilesGiveTheSameWheel) {
    const std::string script = "cd " + SourcePath("deploy/python") + " && for d in a b; do mkdir " + product_.Path("$d") +
                               "; python3 -c \"import backend; backend.build_wheel('" + product_.Path("$d") + "')\"; done; cmp " +
                               product_.Path("a/*.whl") + " " + product_.Path("b/*.whl");
    EXPECT_EQ(Shell(script, "wheel"), 0) << product_.Get("wheel.err");
}

}  // namespace
}  // namespace stockade::tests
