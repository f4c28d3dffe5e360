// Spool, pump and OTLP exporter before a receiver that is away, slow, refuses, lies and hangs up.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "exporters/otlp/otlp.h"
#include "tests/events/otlp_receiver.h"
#include "userspace/base/clock.h"
#include "userspace/model/json.h"
#include "userspace/pipeline/spool_pump.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::testing_events {
namespace {

using pipeline::ChainReport;
using testing::HasSubstr;
using Reply = OtlpReceiver::Reply;

constexpr uint64_t kEvents = 300;

std::string Partial(int64_t rejected) {
    otlp::Response response;
    response.mutable_partial_success()->set_rejected_log_records(rejected);
    response.mutable_partial_success()->set_error_message("too old");
    return response.SerializeAsString();
}

bool IsPoison(const otlp::LogRecord& record) {
    return absl::StrContains(record.body().text(), "\"id\":\"a.15\"");
}

// Removes the one; how many that were.
int64_t RemovePoison(otlp::Request* request) {
    int64_t removed = 0;
    for (auto& resource : *request->mutable_resource_logs()) {
        for (auto& scope : *resource.mutable_scope_logs()) {
            auto* records = scope.mutable_log_records();
            for (int i = records->size() - 1; i >= 0; --i) {
                if (!IsPoison(records->Get(i))) continue;
                records->DeleteSubrange(i, 1);
                ++removed;
            }
        }
    }
    return removed;
}

class OtlpTest : public pipeline::SpoolTest {
  protected:
    OtlpTest() : spool_(Open()) {}

    void StartPump(exporters::ExporterOptions more = {}) {
        more["endpoint"] = receiver_.url();
        pump_ =
            std::make_unique<pipeline::SpoolPump>(*spool_, "r", [more] { return exporters::MakeOtlp(more); });
        ASSERT_TRUE(pump_->Start().ok());
    }
    void Append(uint64_t from, uint64_t to) {
        for (uint64_t i = from; i <= to; ++i) {
            v1::Event event = pipeline::Telemetry("a", i);
            ASSERT_TRUE(spool_->Append(&event).ok());
        }
        ASSERT_TRUE(spool_->Flush().ok());
    }
    static bool Await(const std::function<bool()>& done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
        }
        return true;
    }
    bool AwaitDelivered(uint64_t count) {
        return Await([&] { return pump_->counters().delivered >= count; });
    }
    bool AwaitHealth(const std::string& text) {
        return Await([&] { return absl::StrContains(pump_->Health().message(), text); });
    }
    // As whoever audits: by the bodies. Each record that is not its first must be marked.
    ChainReport Report(uint64_t* marked = nullptr) {
        std::vector<v1::Event> events;
        std::set<std::string> seen;
        for (const otlp::LogRecord& record : receiver_.records()) {
            auto event = model::FromJsonLine(record.body().text());
            EXPECT_TRUE(event.ok()) << event.status();
            bool again = false;
            for (const auto& entry : record.attributes())
                again = again || (entry.key() == "stockade.again" && entry.value().flag());
            const bool first = seen.insert(event->chain()).second;
            EXPECT_TRUE(first || again) << event->id() << " came twice and is not marked";
            if (marked != nullptr) *marked += again;
            events.push_back(*std::move(event));
        }
        return Verify(events)["a"];
    }

    OtlpReceiver receiver_;
    std::unique_ptr<pipeline::Spool> spool_;
    std::unique_ptr<pipeline::SpoolPump> pump_;  // ends before spool and receiver
};

TEST_F(OtlpTest, AllComeInOrderAndOnce) {
    StartPump({{"batchbytes", "16384"}});
    Append(1, kEvents);
    ASSERT_TRUE(AwaitDelivered(kEvents)) << pump_->Health();
    const ChainReport report = Report();
    EXPECT_FALSE(report.faulty()) << report.first_fault;
    EXPECT_EQ(report.events, kEvents);
    EXPECT_EQ(report.repeated, 0u);
    EXPECT_GT(receiver_.requests().size(), 5u) << "in several requests";
    EXPECT_TRUE(pump_->Health().ok());
}

TEST_F(OtlpTest, AReceiverThatIsAwayIsWaitedFor) {
    receiver_.GoAway();
    StartPump();
    Append(1, kEvents);
    ASSERT_TRUE(AwaitHealth("onnect")) << pump_->Health();
    EXPECT_EQ(pump_->counters().delivered, 0u);
    receiver_.ComeBack();
    ASSERT_TRUE(AwaitDelivered(kEvents)) << pump_->Health();
    // And in the middle of it.
    receiver_.GoAway();
    Append(kEvents + 1, 2 * kEvents);
    ASSERT_TRUE(AwaitHealth("onnect")) << pump_->Health();
    receiver_.ComeBack();
    ASSERT_TRUE(AwaitDelivered(2 * kEvents)) << pump_->Health();
    EXPECT_TRUE(pump_->Health().ok());
    EXPECT_EQ(Report().events, 2 * kEvents);
    EXPECT_FALSE(Report().faulty());
    EXPECT_EQ(pump_->counters().rejected, 0u);
}

// It takes a request and dies before it says so; then it is too slow to say so.
TEST_F(OtlpTest, WhatMayHaveArrivedComesAgainAndIsMarked) {
    std::atomic<int> calls{0};
    receiver_.SetAnswer([&](otlp::Request*, const std::string&) {
        const int call = ++calls;
        return Reply{.silent = call == 2, .hangs = call == 4};
    });
    StartPump({{"timeoutms", "500"}, {"batchbytes", "16384"}});
    Append(1, kEvents);
    ASSERT_TRUE(AwaitDelivered(kEvents)) << pump_->Health();
    uint64_t marked = 0;
    const ChainReport report = Report(&marked);
    EXPECT_FALSE(report.faulty()) << report.first_fault;
    EXPECT_GT(report.repeated, 0u) << "it was not there twice: no test";
    EXPECT_GE(marked, report.repeated);
    EXPECT_EQ(report.events, kEvents);
}

TEST_F(OtlpTest, RefusalsOfTheDayAreWaitedOut) {
    for (const int status : {500, 502, 503, 429, 401, 403, 404, 301}) {
        std::atomic<int> calls{0};
        receiver_.SetAnswer([&, status](otlp::Request*, const std::string&) {
            return ++calls <= 2 ? Reply{.status = status, .headers = "Location: http://127.0.0.1:1/\r\n"}
                                : Reply{};
        });
        const uint64_t before = receiver_.records().size();
        StartPump();
        Append(before + 1, before + 20);
        ASSERT_TRUE(AwaitHealth(absl::StrCat("HTTP ", status))) << pump_->Health();
        ASSERT_TRUE(Await([&] { return receiver_.records().size() >= before + 20; }))
            << status << pump_->Health();
        ASSERT_TRUE(AwaitDelivered(20)) << status;
        EXPECT_EQ(pump_->counters().rejected, 0u) << status;
        pump_.reset();
    }
    EXPECT_FALSE(Report().faulty());
    EXPECT_EQ(Report().repeated, 0u);
}

TEST_F(OtlpTest, RetryAfterIsHeard) {
    std::atomic<uint64_t> refused{0}, next{0};
    receiver_.SetAnswer([&](otlp::Request*, const std::string&) {
        if (refused == 0) {
            refused = BootNow();
            return Reply{.status = 429, .headers = "Retry-After: 2\r\n"};
        }
        if (next == 0) next = BootNow();
        return Reply{};
    });
    StartPump();
    Append(1, 20);
    ASSERT_TRUE(AwaitDelivered(20)) << pump_->Health();
    EXPECT_GE(next - refused, 1'900'000'000u) << "our own first pause is 0.1 s";
}

class OtlpRefusal : public OtlpTest, public testing::WithParamInterface<int> {};

TEST_P(OtlpRefusal, OfOneRecordIsFoundToldAndHoldsNothingUp) {
    const int status = GetParam();
    receiver_.SetAnswer([=](otlp::Request* request, const std::string&) {
        otlp::Refusal refusal;
        refusal.set_message("bad\nrecord");
        return RemovePoison(request) > 0 ? Reply{.status = status, .body = refusal.SerializeAsString()}
                                         : Reply{};
    });
    StartPump();
    Append(1, kEvents);
    ASSERT_TRUE(Await([&] { return pump_->counters().delivered + 1 >= kEvents; })) << pump_->Health();
    EXPECT_EQ(pump_->counters().rejected, 1u);
    ASSERT_TRUE(spool_->Flush().ok());  // with what tells of it
    ASSERT_TRUE(AwaitDelivered(kEvents));
    const ChainReport report = Report();
    EXPECT_FALSE(report.faulty()) << report.first_fault << " " << report.missing;
    EXPECT_EQ(report.lost, 1u) << "told by its number";
    EXPECT_EQ(report.repeated, 0u);
    const std::vector<size_t> requests = receiver_.requests();
    EXPECT_EQ(std::count(requests.begin(), requests.end(), 0u), 1)
        << "the question whether it is the record at all";
}
INSTANTIATE_TEST_SUITE_P(Statuses, OtlpRefusal, testing::Values(400, 413, 422));

// As a proxy that knows no such path: no event is given up for it.
TEST_F(OtlpTest, AReceiverThatRefusesEverythingGetsItLater) {
    std::atomic<bool> wrong{true};
    receiver_.SetAnswer([&](otlp::Request*, const std::string&) {
        return wrong ? Reply{.status = 400, .body = "<html>"} : Reply{};
    });
    StartPump();
    Append(1, kEvents);
    ASSERT_TRUE(AwaitHealth("HTTP 400, also for an empty request")) << pump_->Health();
    wrong = false;
    ASSERT_TRUE(AwaitDelivered(kEvents)) << pump_->Health();
    EXPECT_EQ(pump_->counters().rejected, 0u);
    EXPECT_FALSE(Report().faulty());
}

TEST_F(OtlpTest, APartialSuccessCostsTheRefusedRecordAlone) {
    receiver_.SetAnswer([](otlp::Request* request, const std::string&) {
        const int64_t removed = RemovePoison(request);
        return removed > 0 ? Reply{.body = Partial(removed)} : Reply{};
    });
    StartPump();
    Append(1, kEvents);
    ASSERT_TRUE(Await([&] { return pump_->counters().delivered + 1 >= kEvents; })) << pump_->Health();
    ASSERT_TRUE(spool_->Flush().ok());
    ASSERT_TRUE(AwaitDelivered(kEvents));
    EXPECT_EQ(pump_->counters().rejected, 1u);
    const ChainReport report = Report();
    EXPECT_FALSE(report.faulty()) << report.first_fault;
    EXPECT_EQ(report.lost, 1u);
    EXPECT_GT(report.repeated, 0u) << "those beside it came again, marked";
}

TEST_F(OtlpTest, WhatIsUnderWayAtTheEndComesAgainAtTheNextStart) {
    std::atomic<bool> hangs{true};
    std::atomic<int> calls{0};
    receiver_.SetAnswer([&](otlp::Request*, const std::string&) {
        ++calls;
        return Reply{.hangs = hangs};
    });
    StartPump();
    Append(1, 40);
    ASSERT_TRUE(Await([&] { return calls > 0; }));
    pump_->Stop(0);
    receiver_.GoAway();
    receiver_.ComeBack();
    hangs = false;
    // As after kill -9: what was taken is on no record here.
    spool_.reset();
    spool_ = Open();
    StartPump();
    ASSERT_TRUE(AwaitDelivered(40)) << pump_->Health();
    const ChainReport report = Report();
    EXPECT_FALSE(report.faulty());
    EXPECT_GT(report.repeated, 0u);
}

TEST_F(OtlpTest, HostileAnswersAreBoundedAndWaitedOut) {
    const std::string long_line(40'000, 'x');
    const std::vector<Reply> replies = {
        {.headers = "X: " + long_line + "\r\n", .takes = false},             // a head without end
        {.status = 500, .body = std::string(200'000, 'y'), .takes = false},  // an answer that talks too much
        {.status = 500, .body = std::string("\xff\xff\x00\x01\n\x1b[31m", 9), .takes = false},
        {.status = 999, .takes = false},
        {.headers = "Retry-After: -5\r\n", .takes = false, .silent = true},
        {.status = 429, .headers = "Retry-After: tomorrow\r\n", .takes = false},
    };
    std::atomic<size_t> calls{0};
    receiver_.SetAnswer([&](otlp::Request*, const std::string&) {
        const size_t call = calls++;
        return call < replies.size() ? replies[call] : Reply{};
    });
    StartPump({{"timeoutms", "2000"}});
    Append(1, 40);
    ASSERT_TRUE(AwaitDelivered(40)) << pump_->Health();
    EXPECT_GT(calls, replies.size());
    EXPECT_EQ(pump_->counters().rejected, 0u);
    EXPECT_FALSE(Report().faulty());
    EXPECT_EQ(Report().events, 40u);
}

TEST_F(OtlpTest, HeadersOfTheFileAreSentAndShownNowhere) {
    const std::string file = root_ + "/headers";
    std::ofstream(file) << "Authorization: Bearer hunter2\n";
    chmod(file.c_str(), 0600);
    std::atomic<bool> came{false};
    receiver_.SetAnswer([&](otlp::Request*, const std::string& head) {
        came = came || absl::StrContains(head, "Authorization: Bearer hunter2\r\n");
        return came && receiver_.requests().size() > 2 ? Reply{} : Reply{.status = 401};
    });
    StartPump({{"headersfile", file}});
    Append(1, 20);
    ASSERT_TRUE(AwaitHealth("HTTP 401"));
    EXPECT_THAT(std::string(pump_->Health().message()), testing::Not(HasSubstr("hunter2")));
    ASSERT_TRUE(AwaitDelivered(20)) << pump_->Health();
    EXPECT_TRUE(came);
}

}  // namespace
}  // namespace stockade::testing_events
