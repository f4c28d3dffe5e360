// Spool, pump and exporter before a broker of the test's own.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_split.h"
#include "exporters/kafka/kafka.h"
#include "tests/events/broker.h"
#include "userspace/base/fd.h"
#include "userspace/model/json.h"
#include "userspace/pipeline/spool_pump.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::testing_events {

class KafkaTest : public pipeline::SpoolTest {
  protected:
    static void SetUpTestSuite() {
        auto broker = Broker::Start();
        ASSERT_TRUE(broker.ok()) << broker.status();
        broker_ = broker->release();
    }
    static void TearDownTestSuite() {
        delete broker_;
        broker_ = nullptr;
    }

    // Topics of this test alone: <prefix>.<class>.
    void MakeTopics(const std::string& prefix, int partitions) {
        for (const char* name : {"process", "file", "network", "dns", "findings", "lifecycle", "audit"}) {
            const Status status = broker_->CreateTopic(absl::StrCat(prefix, ".", name), partitions);
            ASSERT_TRUE(status.ok()) << status;
        }
    }
    std::unique_ptr<pipeline::SpoolPump> Pump(pipeline::Spool& spool,
                                              const exporters::ExporterOptions& options) {
        return std::make_unique<pipeline::SpoolPump>(spool, "r",
                                                     [options] { return exporters::MakeKafka(options); });
    }
    static bool Await(const std::function<bool()>& done, int seconds = 90) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two looks
        }
        return true;
    }
    // All topics of the prefix, as `stockade verify` would: order is kept in each topic, not between them.
    static std::map<std::string, pipeline::ChainReport> VerifyTopics(const std::string& prefix,
                                                                     uint64_t* messages) {
        std::vector<v1::Event> events;
        for (const char* name : {"process", "file", "network", "dns", "findings", "lifecycle", "audit"}) {
            const auto read = broker_->Read(absl::StrCat(prefix, ".", name));
            EXPECT_TRUE(read.ok()) << read.status();
            if (!read.ok()) continue;
            *messages += read->size();
            std::map<std::string, uint64_t> last;
            for (const auto& message : *read) {
                auto event = model::FromJsonLine(message.value);
                EXPECT_TRUE(event.ok()) << event.status() << message.value;
                if (!event.ok()) continue;
                EXPECT_EQ(message.key, event->sandbox().id());
                uint64_t& before = last[event->sandbox().id()];
                EXPECT_GE(event->export_seq(), before)
                    << "order of " << event->sandbox().id() << " in " << name;
                before = event->export_seq();
                events.push_back(*std::move(event));
            }
        }
        std::stable_sort(events.begin(), events.end(),
                         [](const auto& a, const auto& b) { return a.export_seq() < b.export_seq(); });
        return Verify(events);
    }

    struct Ran {
        int status;
        std::string text;
    };
    static Ran Stockade(const std::string& words) {
        FILE* pipe = popen(absl::StrCat(getenv("STOCKADE_BIN_DIR"), "/stockade ", words, " 2>&1").c_str(), "re");
        Ran ran{0, *ReadAll(fileno(pipe), 16 << 20)};
        ran.status = WEXITSTATUS(pclose(pipe));
        return ran;
    }
    static Ran VerifyKafka(const std::string& flags) { return Stockade(absl::StrCat("verify --kafka ", broker_->hostport(), " ", flags)); }
    static int Count(const std::string& text, absl::string_view start) {
        int count = 0;
        for (const absl::string_view line : absl::StrSplit(text, '\n')) count += absl::StartsWith(line, start);
        return count;
    }
    // By kcat, as anybody who may write there.
    Status Produce(const std::string& topic, const std::string& value) {
        std::ofstream(root_ + "/value") << value << "\n";
        const std::string command = absl::StrCat("kcat -P -b ", broker_->hostport(), " -t ", topic, " <", root_, "/value");
        return system(command.c_str()) == 0 ? absl::OkStatus() : absl::InternalError(command);
    }

    static inline Broker* broker_ = nullptr;
};

}  // namespace stockade::testing_events
