// Python under python-tool: what it is for works, and the first thing that an injected script does ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Python : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { product_ = new Product; }
    static void TearDownTestSuite() {
        delete product_;
        product_ = nullptr;
    }
    static Ran Code(const std::string& code, const std::vector<std::string>& flags = {}) {
        return product_->Run(Policy(), {"python3", "-c", code}, flags);
    }
    static std::string Policy() { return SourcePath("rules/policies/python-tool.yaml"); }
    static inline Product* product_;
};

TEST_F(Python, PrintsAndExits) {
    const Ran ran = Code("print(40+2)");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_THAT(ran.err, testing::AnyOf("", HasSubstr("no cgroup limits")));  // of a host without them
    EXPECT_EQ(At(ran.result, "exit_code"), "0");
    EXPECT_EQ(At(ran.result, "end"), "exited");
    EXPECT_THAT(ran.Refusals(), IsEmpty());
}

TEST_F(Python, UsesItsLibraryAndWritesOut) {
    std::filesystem::create_directory(product_->Path("out"));
    product_->Put("in/data.csv", "a,b\n1,41\n");
    const Ran ran = Code(
        "import csv, json, sqlite3, ssl, ctypes, multiprocessing, tempfile, threading, datetime\n"
        "rows = list(csv.DictReader(open('/in/data.csv')))\n"
        "db = sqlite3.connect('/tmp/x.db'); db.execute('create table t(x)')\n"
        "t = threading.Thread(target=lambda: tempfile.TemporaryFile().write(b'x')); t.start(); t.join()\n"
        "with multiprocessing.Pool(2) as pool: total = sum(pool.map(int, rows[0].values()))\n"
        "json.dump({'total': total}, open('/out/result.json', 'w'))\n",
        {"--in", product_->Path("in"), "--out", product_->Path("out")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_EQ(product_->Get("out/result.json"), "{\"total\": 42}");
}

// A wheel is a zip file; Python itself makes it, outside.
void MakeWheel(const std::string& dir) {
    std::filesystem::create_directories(dir);
    const std::string code =
        "import sys, zipfile\n"
        "info = 'tinywheel-1.0.dist-info/'\n"
        "files = {'tinywheel/__init__.py': 'ANSWER = 42\\n',\n"
        "  info + 'METADATA': 'Metadata-Version: 2.1\\nName: tinywheel\\nVersion: 1.0\\n',\n"
        "  info + 'WHEEL': 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: "
        "py3-none-any\\n'}\n"
        "files[info + 'RECORD'] = ''.join(f'{name},,\\n' for name in [*files, info + 'RECORD'])\n"
        "with zipfile.ZipFile(sys.argv[1] + '/tinywheel-1.0-py3-none-any.whl', 'w') as wheel:\n"
        "  for name, text in files.items(): wheel.writestr(name, text)\n";
    ASSERT_EQ(
        Wait(Start({.argv = {"/usr/bin/python3", "-c", code, dir}, .out = "/dev/null", .err = dir + "/err"})),
        0)
        << ReadText(dir + "/err");
}

TEST_F(Python, PipInstallsALocalWheel) {
    MakeWheel(product_->Path("in/wheels"));
    std::filesystem::create_directories(product_->Path("pip"));
    const Ran ran = product_->Run(Policy(),
                                  {"python3", "-m", "pip", "install", "-q", "--no-index", "--find-links",
                                   "/in/wheels", "--target", "/out/site", "tinywheel"},
                                  {"--in", product_->Path("in"), "--out", product_->Path("pip")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.Refusals(), IsEmpty());
    EXPECT_EQ(product_->Get("pip/site/tinywheel/__init__.py"), "ANSWER = 42\n");
}

TEST_F(Python, VenvMakesAnEnvironmentThatWorks) {
    const Ran ran = Code(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'venv', '/tmp/v'], check=True)\n"
        "print(subprocess.run(['/tmp/v/bin/python3', '-c', 'import pip; print(42)'], capture_output=True,\n"
        "                     text=True).stdout)\n");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("42\n"));
    EXPECT_THAT(ran.Refusals(), IsEmpty());
}

// What pip asks is not there; the shell that would have answered is stopped as ever.
TEST_F(Python, LsbReleaseIsNotThereAndNoShellIsEither) {
    const Ran ran = Code(
        "import subprocess\n"
        "try: subprocess.run(['lsb_release', '-a'])\n"
        "except FileNotFoundError: print('not there', flush=True)\n"
        "subprocess.run(['/bin/sh', '/usr/bin/lsb_release'])\n");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(ran.out, "not there\n");
}

// The sentence of the issue: no shell runs, 137, one line of reason, and the same as JSON.
void ExpectKilledForExec(const Ran& ran, const std::string& program) {
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(ran.out, "");
    const std::string reason = At(ran.result, "reason");
    EXPECT_THAT(reason, HasSubstr(program));
    EXPECT_THAT(ran.err, HasSubstr(absl::StrCat("stockade: killed by policy python-tool: ", reason, "\n")));
    EXPECT_EQ(At(ran.result, "exit_code"), "137");
    EXPECT_EQ(At(ran.result, "end"), "policy");
    EXPECT_EQ(At(ran.result, "code"), "exec.denied");
    EXPECT_EQ(At(ran.result, "removal.clean"), "true");
    const Json event = ran.Refusal(program);
    EXPECT_EQ(At(event, "kind"), "exec") << ran.Text();
    EXPECT_EQ(At(event, "verdict"), "kill-sandbox");
    EXPECT_EQ(At(event, "outcome"), "prevented");
    EXPECT_EQ(At(event, "lock"), "bpf");
}

TEST_F(Python, AShellBySystemEndsTheSandbox) {
    ExpectKilledForExec(Code("import os; os.system('id'); print('went on')"), "/usr/bin/dash");
}

TEST_F(Python, ShellsByOtherWaysEndTheSandbox) {
    ExpectKilledForExec(Code("import os; os.execv('/bin/bash', ['bash', '-c', 'echo ran'])"),
                        "/usr/bin/bash");
    ExpectKilledForExec(Code("import os; os.execv('/proc/self/root/bin/bash', ['sh', '-c', 'echo ran'])"),
                        "/usr/bin/bash");
    ExpectKilledForExec(
        Code("import threading, subprocess\n"
             "t = threading.Thread(target=lambda: print(subprocess.run(['sh', '-c', 'echo ran'])))\n"
             "t.start(); t.join(); print('went on')"),
        "/usr/bin/dash");
}

TEST_F(Python, ACopyOfAShellEndsTheSandbox) {
    const Ran ran = Code(
        "import os, shutil; shutil.copy('/bin/bash', '/tmp/python3'); os.execv('/tmp/python3', "
        "['python3', '-c', 'echo ran'])");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(At(ran.result, "end"), "policy");
    EXPECT_THAT(At(ran.result, "reason"), HasSubstr("/tmp/python3"));
}

// What the same attack does where nothing stops it.
TEST_F(Python, ControlTheShellRunsUnderObserve) {
    const std::string policy =
        product_->Put("observe.yaml",
                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: observed-python}\n"
                      "spec:\n  extends: [base, python-tool]\n  mode: observe\n");
    const Ran ran = product_->Run(policy, {"python3", "-c", "import os; os.system('echo ran')"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "ran\n");
    const Json event = ran.Refusal("/usr/bin/dash");
    EXPECT_EQ(At(event, "verdict"), "kill-sandbox") << ran.Text();  // what it would have been
    EXPECT_EQ(At(event, "outcome"), "done");
}

// A file that was refused must cost nobody else its life: descriptor tables come back at the same address.
TEST_F(Python, ARefusedFileHarmsNoLaterSandbox) {
    product_->Put("in/.ssh/id_rsa", "SECRET\n");
    const std::vector<std::string> in = {"--in", product_->Path("in")};
    for (int i = 0; i < 8; i++) {
        const Ran refused = Code("print(open('/in/.ssh/id_rsa').read())", in);
        EXPECT_THAT(refused.out, Not(HasSubstr("SECRET")));
        EXPECT_NE(refused.status, 0);
        const Ran harmless = Code("print(42)", in);
        ASSERT_EQ(harmless.status, 0) << "round " << i << "\n" << harmless.Text();
    }
}

// The same inside one sandbox: a child was refused, its siblings live on.
TEST_F(Python, ARefusedFileHarmsNoSibling) {
    product_->Put("in/.ssh/id_rsa", "SECRET\n");
    const Ran ran = Code(
        "import os\n"
        "for i in range(20):\n"
        "  for path in ('/in/.ssh/id_rsa', '/usr/lib/os-release'):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "      try: os._exit(0 if open(path).read() else 1)\n"
        "      except PermissionError: os._exit(13)\n"
        "    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    assert (status == 0) == (path != '/in/.ssh/id_rsa'), (i, path, status)\n"
        "print('all as they should')\n",
        {"--in", product_->Path("in")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "all as they should\n");
}

}  // namespace
}  // namespace stockade::tests
