// Secrets go before anybody sees the event: exporter, spool, log or socket.
//
//   SK_ASSIGN_OR_RETURN(auto redactor, Redactor::Create({}));   // the default patterns
//   redactor->Redact(&event);   // event.redactions says which patterns had how many
//
// Looks at every string whose secrecy in event.proto is SECRET_BEARING or SANDBOX_BYTES. Which they
// are is read from the descriptor once. A repeated SECRET_BEARING field is a list of arguments: there
// the value may also be the argument after the option. RE2 takes time linear in the bytes, whatever
// they are. Any thread. Not looked at: labels of the sandbox, which its owner chose.
//
// SEAM: the Decoder redacts what it decodes, EventPath what is published to it; both keep the original for
// the rules alone. Who makes an event on another way calls Redact on it first. The configuration's patterns come in by Options.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/decode/redact_patterns.h"
#include "userspace/model/event.pb.h"

namespace stockade::decode {

class Redactor {
  public:
    // Each pattern costs memory in the automaton that all share, and a pass where it hits.
    static constexpr size_t kMaxPatterns = 256;
    static constexpr char kReplacement[] = "[redacted]";

    struct Options {
        bool defaults = true;
        std::vector<std::string> without{};  // names of default patterns that are left out
        std::vector<RedactPattern> more{};
        // Of the automaton of all patterns together. Beyond it they are tried one by one.
        int64_t set_memory = 16 << 20;
    };
    // kInvalidArgument names the pattern that RE2 does not take, matches the empty text, or is unknown.
    static StatusOr<std::unique_ptr<const Redactor>> Create(const Options& options);
    // The default patterns; made once, for ever.
    static const Redactor& Default();
    ~Redactor();

    // Returns how many strings it changed, and adds to event.redactions. Where it changes any, `original`, unless
    // null, is made the event as it was.
    int Redact(v1::Event* event, std::unique_ptr<v1::Event>* original = nullptr) const;
    // One text that is not in an event: a log line, a sandbox's output.
    bool RedactText(std::string* text) const;

    // By pattern, since it was made.
    std::map<std::string, uint64_t> counts() const;
    // Searches for which RE2 had no memory left: then all patterns were tried one by one.
    uint64_t slow_searches() const { return slow_; }

  private:
    struct Plan;
    struct Compiled;
    struct Hits {
        std::map<int, uint32_t> counts;  // by place in the list of patterns
        const v1::Event* event = nullptr;
        std::unique_ptr<v1::Event>* original = nullptr;
        void KeepOriginal() const;  // before the first change
    };

    explicit Redactor(int64_t set_memory);
    Status Add(const RedactPattern& pattern);
    const Plan* PlanOf(const google::protobuf::Descriptor* type);
    int Walk(google::protobuf::Message* message, const Plan& plan, Hits* hits) const;
    int Arguments(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
                  Hits* hits) const;
    bool Text(std::string* text, Hits* hits) const;
    bool Replace(int pattern, std::string* text, Hits* hits) const;

    std::unique_ptr<Compiled> compiled_;
    std::map<const google::protobuf::Descriptor*, std::unique_ptr<Plan>> plans_;
    mutable std::atomic<uint64_t> slow_{0};
};

}  // namespace stockade::decode
