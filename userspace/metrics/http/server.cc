#include "userspace/metrics/http/server.h"

#include <poll.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/metrics/listen_address.h"

namespace stockade::metrics {
namespace {

// Workers of the HTTP server: a Prometheus or two, and some that hang.
constexpr char kThreads[] = "4";
// A scrape takes a millisecond; who has not sent its request, or not read the answer, by then does not want it.
constexpr char kRequestMs[] = "2000";
// What a scraper sends is some hundred bytes.
constexpr char kRequestBytes[] = "4096";
// The agent has priority over sandboxes, and whoever scrapes in a loop must not: below everybody else's normal share.
constexpr int kNice = 10;
// Between two tries to wake a server that should end.
constexpr int kKnockMs = 10;

prometheus::ClientMetric ToMetric(const Sample& sample, Kind kind) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
    if (kind == Kind::kCounter) metric.counter.value = sample.value;
    if (kind == Kind::kGauge) metric.gauge.value = sample.value;
    if (kind != Kind::kHistogram) return metric;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < sample.histogram.buckets.size(); ++i) {
        cumulative += sample.histogram.buckets[i];
        const double bound = i < Histogram::kBounds.size() ? static_cast<double>(Histogram::kBounds[i]) / 1e9
                                                           : std::numeric_limits<double>::infinity();
        metric.histogram.bucket.push_back({cumulative, bound});
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = static_cast<double>(sample.histogram.sum_ns) / 1e9;
    return metric;
}

prometheus::MetricType TypeOf(Kind kind) {
    switch (kind) {
        case Kind::kCounter:
            return prometheus::MetricType::Counter;
        case Kind::kGauge:
            return prometheus::MetricType::Gauge;
        case Kind::kHistogram:
            return prometheus::MetricType::Histogram;
    }
    return prometheus::MetricType::Untyped;
}

class Board : public prometheus::Collectable {
  public:
    void Publish(std::shared_ptr<const Families> families) {
        // The old ones are freed behind the lock.
        std::lock_guard lock(mutex_);
        families_.swap(families);
    }
    std::vector<prometheus::MetricFamily> Collect() const override {
        std::shared_ptr<const Families> families;
        {
            std::lock_guard lock(mutex_);
            families = families_;
        }
        std::vector<prometheus::MetricFamily> out;
        if (families == nullptr) return out;
        for (const Family& family : families->all()) {
            prometheus::MetricFamily& row = out.emplace_back();
            row.name = family.name;
            row.help = family.help;
            row.type = TypeOf(family.kind);
            for (const Sample& sample : family.samples) row.metric.push_back(ToMetric(sample, family.kind));
        }
        return out;
    }

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<const Families> families_;
};

class PrometheusServer : public Server {
  public:
    // Throws what the library throws.
    PrometheusServer(const std::string& text, const ListenAddress& address)
        : address_(address),
          board_(std::make_shared<Board>()),
          exposer_(std::make_unique<prometheus::Exposer>(std::vector<std::string>{
              "listening_ports", text, "num_threads", kThreads, "request_timeout_ms", kRequestMs,
              "max_request_size", kRequestBytes, "enable_keep_alive", "no"})) {
        exposer_->RegisterCollectable(board_);
    }
    // The library looks whether it should end each two seconds, and when somebody connects: an agent that restarts has not so long.
    ~PrometheusServer() override {
        std::atomic<bool> ended = false;
        std::thread knocker([&] {
            while (!ended) {
                Knock();
                (void)poll(nullptr, 0, kKnockMs);
            }
        });
        exposer_.reset();
        ended = true;
        knocker.join();
    }
    void Publish(std::shared_ptr<const Families> families) override { board_->Publish(std::move(families)); }

  private:
    void Knock() const {
        const Fd fd(socket(address_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        (void)connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_.address),
                      address_.size);  // refused = it has ended
    }

    const ListenAddress address_;
    const std::shared_ptr<Board> board_;
    std::unique_ptr<prometheus::Exposer> exposer_;  // keeps the board weakly; ends its threads first
};

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& address) {
    SK_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
    StatusOr<std::unique_ptr<Server>> server = absl::UnknownError("not started");
    // The server's threads have the priority of the one that makes them.
    std::thread([&] {
        (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)),
                          kNice);  // where it is refused it works as well
        try {
            server = std::unique_ptr<Server>(std::make_unique<PrometheusServer>(address, parsed));
        } catch (const std::exception& error) {
            server = absl::UnavailableError(absl::StrCat("serve metrics at ", address, ": ", error.what()));
        }
    }).join();
    return server;
}

}  // namespace stockade::metrics
