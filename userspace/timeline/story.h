// The events of one session as one story that a person who was not there can read: what was started, what it did, what it
// was refused and why, how it ended.
//
//   StoryBuilder builder("s-42");
//   for (const v1::Event& event : events) builder.Add(event);   // in any order, from any number of nodes
//   Story story = builder.Finish();
//   fputs(ToText(story, {}).c_str(), stdout);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"
#include "userspace/timeline/spans.h"

namespace stockade::timeline {

// Events of one session that are held at once, some 1 KiB each. What comes after them is counted and told.
inline constexpr size_t kMaxEvents = 500'000;
// Names of files, addresses and queries that one row lists; the rest of them is a number.
inline constexpr size_t kMaxItems = 50;
// Sessions that are told of where the one asked for is not there.
inline constexpr size_t kMaxSessions = 1000;

// What a row is to its reader.
enum class Tone {
    kStep,     // a step in the life of a sandbox
    kWork,     // something that was allowed
    kRefused,  // something that the policy refuses, also where it was only observed
    kFinding,
    kEnd,      // killed, or a step that something went wrong in
    kLost,     // events that are missing
    kSpan,     // of the trace that the sandbox belongs to: what called it
};
constexpr Tone kTones[] = {Tone::kStep, Tone::kWork, Tone::kSpan, Tone::kRefused, Tone::kFinding, Tone::kEnd, Tone::kLost};
absl::string_view ToneName(Tone tone);

struct Row {
    uint64_t wall_ns = 0;  // since 1970
    size_t sandbox = 0;    // in Story::sandboxes
    Tone tone = Tone::kStep;
    std::string kind;  // of the event
    std::string text;  // one sentence, without a stop
    std::string detail;
    std::string process;  // "python3 (4711)"; empty where there is none
    uint64_t count = 1;   // events that the row stands for
    std::vector<std::string> items;
    std::vector<std::string> ids;  // of the events, at most kMaxItems
    // " (12 times)" where that is more than its items say, else empty.
    std::string Times() const;
};

struct Told {
    std::string id, node, tool, policy, policy_hash, runtime, trace;
    std::map<std::string, std::string> labels;
    uint64_t first_ns = 0, last_ns = 0;  // wall time of its first and last event
    uint64_t events = 0, refused = 0, findings = 0, lost = 0;
    std::string command;  // the first program, with its arguments
    std::string end;      // how it ended; empty = nobody has said
    bool has_status = false;
    int32_t exit_status = 0;
    bool removed = false;  // nothing of it is left, as the agent has verified
    bool sealed = false;
    // "killed, exit status 137, removed and verified".
    std::string Fate() const;
};

struct Story {
    std::string session;
    std::vector<Told> sandboxes;  // by their first event
    std::vector<Row> rows;        // by time
    uint64_t first_ns = UINT64_MAX, last_ns = 0;  // wall time of what is told
    uint64_t repeated = 0;        // events that came more than once
    uint64_t left_out = 0;        // beyond kMaxEvents
};

class StoryBuilder {
  public:
    // `session`: a session label, or the id of one sandbox.
    explicit StoryBuilder(std::string session) : session_(std::move(session)) {}
    void Add(const v1::Event& event);
    // Is told where a sandbox of the session has its trace.
    void AddSpan(Span span) { spans_.push_back(std::move(span)); }
    // Empty rows where nothing of the session came.
    Story Finish();
    // Session labels that were seen, with their number of events.
    const std::map<std::string, uint64_t>& sessions() const { return sessions_; }

  private:
    std::string session_;
    std::map<std::string, uint64_t> sessions_;
    std::vector<v1::Event> events_;
    std::vector<Span> spans_;
    uint64_t left_out_ = 0;
};

struct TextOptions {
    bool color = false;
    bool all = false;  // the items of each row
};
std::string ToText(const Story& story, const TextOptions& options);

// One HTML page that needs nothing else. Its text is data of others: all of it is escaped.
std::string ToPage(const Story& story);

// "python3 tool.py 'a b'": arguments as a shell would take them.
std::string CommandLine(const google::protobuf::RepeatedPtrField<std::string>& argv);
// "1.5 ms", "2.3 s", "4 min 10 s".
std::string Duration(uint64_t ns);
// "2026-11-30 12:00:01.123 UTC"
std::string WallTime(uint64_t wall_ns);

}  // namespace stockade::timeline
