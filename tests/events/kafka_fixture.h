// Spool, pump and exporter before a broker of the test's own.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <thread>

#include "exporters/kafka/kafka.h"
#include "tests/events/broker.h"
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

    static inline Broker* broker_ = nullptr;
};

}  // namespace stockade::testing_events
