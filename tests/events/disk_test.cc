// An agent whose disk takes nothing: sandboxes start, are judged and end as ever, and what they did is told later.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::testing_events {
namespace {

using testing::HasSubstr;
using tests::Until;

constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: reader}\nspec:\n"
    "  exec: {allow: [/bin/sh, /usr/bin/dash, /bin/true, /usr/bin/true], violation: kill-sandbox}\n"
    "  files: {read: [/usr/**, /lib/**, /dev/**], write: [/dev/**]}\n  network: {allow: []}\n  record: {files: all}\n";

class Disk : public testing::Test {
  protected:
    void SetUp() override {
        product_ = std::make_unique<tests::Product>();
        disk_ = product_->Path("disk");
        ASSERT_EQ(mkdir(disk_.c_str(), 0700), 0);
        // Smaller than the spool may become: it is the disk that ends first.
        ASSERT_EQ(mount("stockade-test", disk_.c_str(), "tmpfs", 0, "size=8m"), 0);
        product_->Configure(absl::StrCat("agent_wait_seconds: 60\nevents:\n  spool: {dir: ", disk_,
                                         "/spool, max_bytes: 16777216}\n  exporters:\n    - {kind: jsonl, path: ",
                                         product_->Path("events.jsonl"), "}\n"));
        policy_ = product_->Put("reader.yaml", kPolicy);
    }
    void TearDown() override {
        product_->StopAgent(SIGTERM);
        (void)umount2(disk_.c_str(), MNT_DETACH);  // a test that failed early has none
        product_.reset();
    }
    void Fill() {
        const Fd filler(open((disk_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        const std::string block(64 << 10, 'x');
        while (write(filler.get(), block.data(), block.size()) > 0) {
        }
        while (write(filler.get(), "x", 1) == 1) {
        }
        ASSERT_EQ(errno, ENOSPC);
    }
    void Free() { ASSERT_EQ(unlink((disk_ + "/filler").c_str()), 0); }
    // `reads` events and some more.
    tests::Ran Reads(int reads) {
        return product_->Run(policy_, {"/bin/sh", "-c",
                                       absl::StrCat("i=0; while [ $i -lt ", reads,
                                                    " ]; do : </usr/bin/env; i=$((i+1)); done; echo done")});
    }
    bool AwaitLog(const std::string& text) {
        return Until([&] { return absl::StrContains(product_->Get("run/agent.log"), text); });
    }
    int Seals() {
        int seals = 0;
        for (const absl::string_view line : absl::StrSplit(product_->Get("events.jsonl"), '\n'))
            seals += absl::StrContains(line, "\"kind\":\"seal\"");
        return seals;
    }
    std::unique_ptr<tests::Product> product_;
    std::string disk_, policy_;
};

TEST_F(Disk, FullAtTheStartAndWhileItRunsStopsNothingAndHidesNothing) {
    Fill();
    tests::Ran ran = Reads(300);
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_TRUE(AwaitLog("events are not spooled, and stay in the rings")) << product_->Get("run/agent.log");
    EXPECT_THAT(product_->Get("run/agent.log"), HasSubstr("ENOSPC"));
    // Enforcement does not wait for it.
    ran = product_->Run(policy_, {"/bin/sh", "-c", "/bin/ls /; echo alive"});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(Seals(), 0);
    Free();
    EXPECT_TRUE(AwaitLog("events are spooled again"));
    EXPECT_TRUE(Until([&] { return Seals() == 2; })) << Seals();
    ran = product_->Stockade({"verify", product_->Path("events.jsonl")});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;

    Fill();
    ran = Reads(2000);
    EXPECT_EQ(ran.status, 0) << ran.Text();
    Free();
    EXPECT_TRUE(Until([&] { return Seals() == 3; })) << Seals();
    product_->StopAgent(SIGTERM);
    ran = product_->Stockade({"verify", product_->Path("events.jsonl")});
    // The oldest makes room on a full disk, and nobody may have got it yet: told, and nothing else.
    EXPECT_THAT(ran.status, testing::AnyOf(0, 2)) << ran.out << ran.err;
    EXPECT_THAT(ran.out, testing::AllOf(testing::Not(HasSubstr("FAULTY")), testing::Not(testing::ContainsRegex("open +[^ ]+ sbx_")),
                                        testing::Not(HasSubstr("in the kernel"))));
}

}  // namespace
}  // namespace stockade::testing_events
