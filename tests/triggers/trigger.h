// The triggers: one static program that tries what a sandboxed program might try, one operation a run.
//
//   triggers open_read /etc/shadow
//
// It says what happened on standard output, for a test that holds the other end of the pipe:
//   done            the operation worked                exit 0
//   data BYTES      and these bytes came
//   errno N NAME    it was refused                      exit 1
//   setup TEXT      the trigger could not get that far  exit 2
// Nothing else is opened or asked on the way: what a policy refuses is the operation and nothing before it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>

namespace stockade::triggers {

// The words after the operation's name; their number has been checked.
using Args = std::span<char* const>;

struct Trigger {
    const char* name;
    size_t args;        // at least so many words
    const char* usage;  // what they are
    int (*run)(Args args);
};

int Done();
int Data(const void* bytes, size_t size);
// Where another task tells of the effect: the caller got to the instruction after the call.
void Lived();
// By errno.
int Refused();
// For steps before the operation; by errno.
int Setup(const char* step);
// `result` of a system call: below 0 Refused, else Done.
int Outcome(long result);
// A decimal number; the test chose it.
int Number(const char* text);

std::span<const Trigger> ExecTriggers();
std::span<const Trigger> OpenTriggers();
std::span<const Trigger> PathTriggers();
std::span<const Trigger> NetTriggers();
std::span<const Trigger> SocketTriggers();
std::span<const Trigger> EscapeTriggers();
std::span<const Trigger> CgroupTriggers();
std::span<const Trigger> DnsTriggers();

}  // namespace stockade::triggers
