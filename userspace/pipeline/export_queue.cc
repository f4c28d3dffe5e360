#include "userspace/pipeline/export_queue.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace stockade::pipeline {

ExportQueue::ExportQueue(std::unique_ptr<exporters::Exporter> exporter, Options options)
    : options_(options), exporter_(std::move(exporter)) {
    // Signals are the main thread's: the exporter's inherits a full mask.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ExportQueue::~ExportQueue() { (void)Close(); /* who cares has called Close before */ }

void ExportQueue::Push(std::shared_ptr<const v1::Event> event, bool important) {
    {
        std::lock_guard lock(mutex_);
        const size_t room = options_.max_events + (important ? options_.reserve : 0);
        if (stop_ || queue_.size() + in_flight_ >= room) {
            ++(important ? counters_.dropped_important : counters_.dropped_telemetry);
            return;
        }
        queue_.push_back(std::move(event));
        ++counters_.queued;
    }
    work_.notify_one();
}

Status ExportQueue::Flush() {
    std::unique_lock lock(mutex_);
    if (stop_) return close_status_;
    const uint64_t ticket = ++flush_wanted_;
    work_.notify_one();
    idle_.wait(lock, [&] { return flush_done_ >= ticket || closed_; });
    return closed_ ? close_status_ : flush_status_;
}

Status ExportQueue::Close() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_one();
    if (thread_.joinable()) thread_.join();
    std::lock_guard lock(mutex_);
    return close_status_;
}

ExportQueue::Counters ExportQueue::counters() const {
    std::lock_guard lock(mutex_);
    return counters_;
}

void ExportQueue::Note(const Status& status) {
    if (status.ok()) return;
    ++counters_.failed;
    counters_.last_error = std::string(status.message());
}

void ExportQueue::Run() {
    std::deque<std::shared_ptr<const v1::Event>> batch;
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [&] { return stop_ || !queue_.empty() || flush_wanted_ > flush_done_; });
        const bool stop = stop_;
        const uint64_t ticket = flush_wanted_;
        batch.swap(queue_);
        in_flight_ = batch.size();
        lock.unlock();
        Status first;
        for (const auto& event : batch) first.Update(exporter_->Export(*event));
        batch.clear();
        lock.lock();
        in_flight_ = 0;
        Note(first);
        // Nothing more to do: a reader who follows live must not wait for a full buffer.
        if (!queue_.empty() && ticket == flush_done_) continue;
        lock.unlock();
        const Status flushed = exporter_->Flush();
        lock.lock();
        Note(flushed);
        flush_status_ = first.ok() ? flushed : first;
        flush_done_ = ticket;
        idle_.notify_all();
        if (stop && queue_.empty()) break;
    }
    lock.unlock();
    const Status closed = exporter_->Close();
    lock.lock();
    Note(closed);
    close_status_ = flush_status_.ok() ? closed : flush_status_;
    closed_ = true;
    idle_.notify_all();
}

}  // namespace stockade::pipeline
