// Why something was refused, for people and for the policy's author.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {

// "exec.not_allowed"; empty for a number that bpf/wire/kinds.h does not have.
absl::string_view CodeName(uint32_t code);

// "the policy does not allow reading /etc/shadow". The object is inserted as it is: escape
// what comes from a sandbox first.
std::string ReasonSentence(uint32_t code, absl::string_view object);

// What the event is about: path, address:port, unix socket or operation. Escaped already.
std::string ObjectOf(const v1::Event& event);

// The line of a policy that would allow what was refused, e.g. "files.read: [/etc/shadow]" or
// "grants: [ptrace]". Empty where no line can, e.g. for a denied path or another lock.
std::string Suggestion(const v1::Event& event);

// The same of a whole path, with wildcards escaped and a process's number as `self`: "LIST: [PATH]".
std::string PathLineOf(absl::string_view list, absl::string_view path);

// The SK_GRANT_* without which an operation of an escape event is refused; -1 for what none allows.
int GrantOfEscape(absl::string_view op);
// "grants: [NAME]"; empty for -1.
std::string GrantLine(int grant);

// Deny or worse.
bool IsViolation(const v1::Event& event);
// Violation, or refused by another lock.
bool IsRefusal(const v1::Event& event);
// Refused with a signal to the caller, or with the end of its sandbox.
bool Kills(const v1::Event& event);

}  // namespace stockade::model
