// Events and folders for tests of the spool.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/pipeline/spool.h"
#include "userspace/pipeline/verify.h"

namespace stockade::pipeline {

inline v1::Event Telemetry(const std::string& sandbox, uint64_t kernel_seq, size_t bytes = 40) {
    v1::Event event;
    event.set_id(absl::StrCat(sandbox, ".", kernel_seq));
    event.set_node("n1");
    event.set_kind("file");
    event.set_kernel_seq(kernel_seq);
    if (!sandbox.empty()) event.mutable_sandbox()->set_id(sandbox);
    event.mutable_file()->set_path("/" + std::string(bytes, 'x'));
    return event;
}

inline v1::Event Violation(const std::string& sandbox, uint64_t kernel_seq) {
    v1::Event event = Telemetry(sandbox, kernel_seq);
    event.set_verdict("deny");
    return event;
}

inline v1::Event Finding(const std::string& sandbox, uint64_t number) {
    v1::Event event = Telemetry(sandbox, 0);
    event.set_id(absl::StrCat("finding.", number));
    event.mutable_finding()->set_rule("r");
    return event;
}

class SpoolTest : public testing::Test {
  protected:
    SpoolTest() {
        char name[] = "/tmp/spool_test_XXXXXX";
        root_ = mkdtemp(name);
        options_.dir = root_ + "/spool";
        options_.node = "n1";
        options_.readers = {"r"};
        options_.segment_bytes = 4096;
        options_.max_bytes = 1 << 20;
        key_ = std::make_unique<NodeKey>(NodeKey::LoadOrCreate(root_ + "/node.key").value());
        options_.key = key_.get();
    }
    ~SpoolTest() override { std::filesystem::remove_all(root_); }

    std::unique_ptr<Spool> Open() { return OpenWith(options_); }
    static std::unique_ptr<Spool> OpenWith(const Spool::Options& options) {
        auto spool = Spool::Open(options);
        EXPECT_TRUE(spool.ok()) << spool.status();
        return spool.ok() ? *std::move(spool) : nullptr;
    }
    // All that the reader gets until there is none.
    static std::vector<v1::Event> Drain(Spool& spool, bool ack = true, const std::string& reader = "r") {
        std::vector<v1::Event> events;
        while (auto record = spool.Next(reader)) {
            EXPECT_TRUE(events.emplace_back().ParseFromString(record->payload));
            if (ack) spool.Ack(reader, record->position);
        }
        return events;
    }
    static std::vector<std::string> Ids(const std::vector<v1::Event>& events) {
        std::vector<std::string> ids;
        for (const v1::Event& event : events) ids.push_back(event.id());
        return ids;
    }
    static std::map<std::string, ChainReport> Verify(const std::vector<v1::Event>& events) {
        Verifier verifier({});
        for (const v1::Event& event : events) EXPECT_TRUE(verifier.Add(event).ok());
        std::map<std::string, ChainReport> by_sandbox;
        for (const ChainReport& report : verifier.Finish()) by_sandbox[report.sandbox] = report;
        return by_sandbox;
    }
    // Segments of a lane, oldest first.
    std::vector<std::string> Segments(Lane lane) const {
        std::vector<std::string> paths;
        for (const auto& entry : std::filesystem::directory_iterator(options_.dir)) {
            const std::string name = entry.path().filename();
            if (absl::StartsWith(name, absl::StrCat(static_cast<int>(lane), "-")))
                paths.push_back(entry.path());
        }
        std::sort(paths.begin(), paths.end());
        return paths;
    }

    std::string root_;
    std::unique_ptr<NodeKey> key_;
    Spool::Options options_;
};

}  // namespace stockade::pipeline
