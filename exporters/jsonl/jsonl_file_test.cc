#include "exporters/jsonl/jsonl_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/model/json.h"

namespace stockade::exporters {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JsonlFileTest : public testing::Test {
  protected:
    JsonlFileTest() {
        char name[] = "/tmp/jsonl_file_XXXXXX";
        root_ = mkdtemp(name);
        path_ = root_ + "/events.jsonl";
    }
    ~JsonlFileTest() override { std::filesystem::remove_all(root_); }

    std::unique_ptr<SpooledExporter> Make(ExporterOptions options = {}) {
        options.emplace("path", path_);
        auto made = MakeJsonlFile(options);
        EXPECT_TRUE(made.ok()) << made.status();
        (*made)->OnDelivered([this](uint64_t tag, const Status& status) { told_[tag] = status; });
        return *std::move(made);
    }
    static Status Send(SpooledExporter& exporter, uint64_t tag) {
        v1::Event event;
        event.set_id(absl::StrCat("e", tag));
        event.set_node("n");
        const std::string bytes = event.SerializeAsString();
        return exporter.Send(tag, *model::EventBytes::Of(bytes), false);
    }
    static std::string Text(const std::string& path) {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    static std::vector<std::string> Ids(const std::string& path) {
        std::vector<std::string> ids;
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) {
            const auto event = model::FromJsonLine(line);
            ids.push_back(event.ok() ? event->id() : "no event: " + line);
        }
        return ids;
    }
    std::string root_, path_;
    std::map<uint64_t, Status> told_;
};

TEST_F(JsonlFileTest, ALineCountsOnceItIsOnTheDiskAndManyShareASync) {
    int syncs = 0;
    bool broken = false;
    auto made = MakeJsonlFileSyncedBy({{"path", path_}}, [&](int fd) {
        ++syncs;
        return broken ? (errno = EIO, -1) : fdatasync(fd);
    });
    ASSERT_TRUE(made.ok()) << made.status();
    (*made)->OnDelivered([this](uint64_t tag, const Status& status) { told_[tag] = status; });
    ASSERT_TRUE(Send(**made, 1).ok());
    (*made)->Poll(1);
    EXPECT_EQ(told_.count(1), 1u);
    syncs = 0;
    for (uint64_t tag = 2; tag <= 40; ++tag) {
        ASSERT_TRUE(Send(**made, tag).ok());
        (*made)->Poll(0);  // there is more
    }
    EXPECT_LE(syncs, 3) << "by time";
    (*made)->Poll(1);
    EXPECT_EQ(told_.size(), 40u);
    // What the disk does not take is taken back: it comes again, and must not stand there twice.
    broken = true;
    ASSERT_TRUE(Send(**made, 41).ok());
    (*made)->Poll(1);
    EXPECT_FALSE(told_[41].ok());
    EXPECT_FALSE((*made)->Health().ok());
    EXPECT_EQ(Ids(path_).size(), 40u);
    broken = false;
    ASSERT_TRUE(Send(**made, 41).ok());
    (*made)->Poll(1);
    EXPECT_TRUE(told_[41].ok()) << told_[41];
    EXPECT_EQ(Ids(path_).size(), 41u);
}

TEST_F(JsonlFileTest, WritesLinesAndTellsOfEachOnceItIsThere) {
    auto file = Make();
    for (uint64_t tag : {1, 2, 3}) ASSERT_TRUE(Send(*file, tag).ok());
    EXPECT_TRUE(told_.empty());
    file->Poll(1);
    EXPECT_THAT(Ids(path_), ElementsAre("e1", "e2", "e3"));
    EXPECT_EQ(told_.size(), 3u);
    for (const auto& [tag, status] : told_) EXPECT_TRUE(status.ok()) << tag << status;
    struct stat st{};
    ASSERT_EQ(stat(path_.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);
    EXPECT_EQ(file->counters().delivered, 3u);
    ASSERT_TRUE(Send(*file, 4).ok());
    file->Close(0);
    EXPECT_THAT(Ids(path_), ElementsAre("e1", "e2", "e3", "e4")) << "what was taken is not left behind";
}

TEST_F(JsonlFileTest, RotatesAtTheBoundAndKeepsSoMany) {
    auto file = Make({{"rotatebytes", "60"}, {"rotatekeep", "2"}});
    for (uint64_t tag = 1; tag <= 4; ++tag) {
        ASSERT_TRUE(Send(*file, tag).ok());
        file->Poll(1);
        ASSERT_TRUE(Send(*file, tag + 10).ok());
        file->Poll(1);
    }
    EXPECT_THAT(Ids(path_), ElementsAre("e4", "e14"));
    EXPECT_THAT(Ids(path_ + ".1"), ElementsAre("e3", "e13"));
    EXPECT_THAT(Ids(path_ + ".2"), ElementsAre("e2", "e12"));
    EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
}

TEST_F(JsonlFileTest, AFileThatSomebodyElseRenamedIsMadeAnew) {
    auto file = Make();
    ASSERT_TRUE(Send(*file, 1).ok());
    file->Poll(1);
    std::filesystem::rename(path_, path_ + ".old");
    ASSERT_TRUE(Send(*file, 2).ok());
    file->Poll(1);
    EXPECT_THAT(Ids(path_ + ".old"), ElementsAre("e1"));
    EXPECT_THAT(Ids(path_), ElementsAre("e2"));
}

TEST_F(JsonlFileTest, HalfALineOfACrashIsCutOff) {
    std::ofstream(path_) << "{\"id\":\"e1\"}\n" << std::string(10000, 'x');
    auto file = Make();
    ASSERT_TRUE(Send(*file, 2).ok());
    file->Poll(1);
    EXPECT_THAT(Ids(path_), ElementsAre("e1", "e2"));
}

TEST_F(JsonlFileTest, WithoutItsDirectoryItSaysSoAndTriesAgain) {
    path_ = root_ + "/later/events.jsonl";
    auto file = Make();
    ASSERT_TRUE(Send(*file, 1).ok());
    file->Poll(1);
    EXPECT_TRUE(absl::IsNotFound(file->Health())) << file->Health();
    EXPECT_TRUE(absl::IsUnavailable(told_.at(1))) << "it may be sent again";
    std::filesystem::create_directory(root_ + "/later");
    ASSERT_TRUE(Send(*file, 1).ok());
    file->Poll(1);
    EXPECT_TRUE(told_.at(1).ok());
    EXPECT_TRUE(file->Health().ok());
    EXPECT_THAT(Ids(path_), ElementsAre("e1"));
}

// A limit on the size of files stands for a full disk: the write is cut in the middle of a line.
TEST_F(JsonlFileTest, AWriteThatIsCutLeavesNoHalfLine) {
    auto file = Make();
    ASSERT_TRUE(Send(*file, 1).ok());
    file->Poll(1);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    const rlimit small{std::filesystem::file_size(path_) + 10, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t tag : {2, 3}) ASSERT_TRUE(Send(*file, tag).ok());
    file->Poll(1);
    EXPECT_TRUE(absl::IsUnavailable(told_.at(2)) && absl::IsUnavailable(told_.at(3)));
    EXPECT_THAT(Ids(path_), ElementsAre("e1"));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (uint64_t tag : {2, 3}) ASSERT_TRUE(Send(*file, tag).ok());
    file->Poll(1);
    EXPECT_THAT(Ids(path_), ElementsAre("e1", "e2", "e3"));
}

TEST_F(JsonlFileTest, AFifoIsWaitedForAndAReaderThatStandsStillIsTold) {
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    auto file = Make();
    uint64_t tag = 0, taken = 0;
    ASSERT_TRUE(Send(*file, ++tag).ok());
    file->Poll(1);
    ASSERT_EQ(told_.count(tag), 1u);
    EXPECT_FALSE(told_[tag].ok()) << "nobody would ever read it";
    const Fd reader(open(path_.c_str(), O_RDONLY | O_NONBLOCK));
    // A pipe holds 64 KiB.
    while (Send(*file, ++tag).ok() && tag < 3000) {
    }
    file->Poll(1);
    EXPECT_THAT(std::string(file->Health().message()), HasSubstr("nobody reads it"));
    for (const auto& [number, status] : told_) taken += status.ok();
    EXPECT_GT(taken, 0u);
    EXPECT_LT(taken, tag);
    std::string text(1 << 20, 0);
    const ssize_t got = read(reader.get(), text.data(), text.size());
    ASSERT_GT(got, 0);
    text.resize(static_cast<size_t>(got));
    EXPECT_GE(static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')), taken) << "whole lines are what counts";
}

TEST_F(JsonlFileTest, OptionsThatAreWrongAreNamed) {
    const std::pair<ExporterOptions, const char*> cases[] = {
        {{}, "path"},
        {{{"path", "relative"}}, "absolute"},
        {{{"path", "/x"}, {"format", "xml"}}, "xml"},
        {{{"path", "/x"}, {"rotatebytes", "many"}}, "rotatebytes"},
        {{{"path", "/x"}, {"rotatekeep", "1001"}}, "rotatekeep"},
        {{{"path", "/x"}, {"pth", "/y"}}, "no option \"pth\""},
    };
    for (const auto& [options, text] : cases) {
        const auto made = MakeJsonlFile(options);
        ASSERT_FALSE(made.ok()) << text;
        EXPECT_TRUE(absl::IsInvalidArgument(made.status()));
        EXPECT_THAT(std::string(made.status().message()), HasSubstr(text));
    }
    EXPECT_TRUE(MakeJsonlFile({{"path", "-"}}).ok());
}

}  // namespace
}  // namespace stockade::exporters
