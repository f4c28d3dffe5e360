// A policy learned from a run lets the same run through, and an attack not.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kObserver[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: observer}\nspec:\n  mode: observe\n  exec: {}\n  files: {}\n"
    "  network: {}\n  record: {exec: all, files: all, network: all}\n";

// Temporary names, versions, a port that the kernel chooses and /proc/self: all of it is another the next time.
constexpr char kPython[] = R"(
import json, os, socket, sqlite3, ssl, subprocess, tempfile
t = tempfile.NamedTemporaryFile(); t.write(b'x'); t.flush()
sqlite3.connect('/tmp/a.db').execute('create table x(y)')
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
socket.create_connection(server.getsockname())
open('/proc/self/status').read()
subprocess.run(['/usr/bin/uname', '-a'], check=True, capture_output=True)
open('/out/r.json', 'w').write(json.dumps({'a': open('/in/data').read()}))
)";
constexpr char kBuild[] =
    "cd /tmp && printf 'int main(void){return 0;}' >a.c && gcc -O1 a.c -o a && ./a && printf 'all:\\n\\ttrue\\n' >Makefile && make -s && "
    "tar cf a.tar a.c && tar tf a.tar >/out/list";

struct Work {
    const char* name;
    std::vector<std::string> command;
};

class Learn : public ::testing::TestWithParam<Work> {
  protected:
    std::string Learned(const Work& work) {
        product_.Put("in/data", "1\n");
        product_.Put("out/.keep", "");
        flags_ = {"--in", product_.Path("in"), "--out", product_.Path("out")};
        const Ran seen = product_.Run(product_.Put("observer.yaml", kObserver), work.command,
                                      {"--in", product_.Path("in"), "--out", product_.Path("out"), "--session", "s-1"});
        EXPECT_EQ(seen.status, 0) << seen.Text();
        std::string lines;
        for (const Json& event : seen.events) {
            std::string line;
            EXPECT_TRUE(google::protobuf::util::MessageToJsonString(event, &line).ok());
            absl::StrAppend(&lines, line, "\n");
        }
        const Ran learned = product_.Stockade({"policy", "learn", product_.Put("events.jsonl", lines), "--name", "learned", "--session", "s-1"});
        EXPECT_EQ(learned.status, 0) << learned.err << learned.out;
        const std::string policy = product_.Put("learned.yaml", learned.out);
        const Ran checked = product_.Stockade({"policy", "test", policy});
        EXPECT_EQ(checked.status, 0) << checked.err << checked.out << learned.out;
        return policy;
    }
    Product product_;
    std::vector<std::string> flags_;
};

TEST_P(Learn, TheSameRunPassesAndAnAttackDoesNot) {
    const Work& work = GetParam();
    const std::string policy = Learned(work);
    const Ran again = product_.Run(policy, work.command, flags_);
    EXPECT_EQ(again.status, 0) << again.Text() << ReadText(policy);
    EXPECT_THAT(again.Refusals(), IsEmpty()) << ReadText(policy);
    // Each in a run of its own: under `signal` a refused read ends its caller.
    product_.Put("in/home/.ssh/id_ed25519", "key\n");
    const std::pair<const char*, const char*> kAttacks[] = {
        {"import os; os.execv('/usr/bin/id', ['id'])", "executing /usr/bin/id"},
        {"open('/in/home/.ssh/id_ed25519').read()", "reading /in/home/.ssh/id_ed25519"},
        {"open('/dev/shm/x', 'w')", "/dev/shm/x"},
        {"import socket; socket.create_connection(('198.51.100.9', 80), 2)", "198.51.100.9:80"}};
    for (const auto& [code, refused] : kAttacks) {
        const Ran ran = product_.Run(policy, {"python3", "-c", code}, flags_);
        EXPECT_NE(ran.status, 0) << code;
        EXPECT_EQ(ran.out, "") << code;
        EXPECT_THAT(ran.err, HasSubstr(work.command[0] == "python3" ? refused : "python3")) << code;
    }
}

INSTANTIATE_TEST_SUITE_P(Works, Learn, ::testing::Values(Work{"python", {"python3", "-c", kPython}}, Work{"build", {"/bin/sh", "-c", kBuild}}),
                         [](const auto& info) { return info.param.name; });

// An observed run tells the difference: the attacks above have their effect where nothing refuses them.
TEST(LearnControl, WhatIsRefusedWorksWithoutAPolicy) {
    Product product;
    product.Put("in/home/.ssh/id_ed25519", "key\n");
    const Ran ran = product.Run(product.Put("observer.yaml", kObserver),
                                {"python3", "-c", "open('/dev/shm/x', 'w'); print(open('/in/home/.ssh/id_ed25519').read(), flush=True); import os; os.execv('/usr/bin/id', ['id'])"},
                                {"--in", product.Path("in")});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, testing::AllOf(HasSubstr("key"), HasSubstr("uid=")));
}

}  // namespace
}  // namespace stockade::tests
