#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

// One write for one line: nothing is lost when the next call is the last.
int Say(const char* word, const void* bytes, size_t size, int status) {
    char line[512];
    int length = snprintf(line, sizeof(line), "%s%.*s\n", word, static_cast<int>(size < 400 ? size : 400), static_cast<const char*>(bytes));
    return write(1, line, static_cast<size_t>(length)) == length ? status : 3;
}

}  // namespace

int Done() { return Say("done", "", 0, 0); }
int Data(const void* bytes, size_t size) {
    Say("data ", bytes, size, 0);
    return Done();
}
void Lived() { Say("lived", "", 0, 0); }
int Refused() {
    char text[64];
    int length = snprintf(text, sizeof(text), "errno %d %s", errno, strerrorname_np(errno));
    return Say("", text, static_cast<size_t>(length), 1);
}
int Setup(const char* step) {
    char text[128];
    int length = snprintf(text, sizeof(text), "setup %s: %s", step, strerrorname_np(errno));
    return Say("", text, static_cast<size_t>(length), 2);
}
int Outcome(long result) { return result < 0 ? Refused() : Done(); }
int Number(const char* text) { return static_cast<int>(strtol(text, nullptr, 10)); }

namespace {

int Main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    Args args(argv + 2, argc > 2 ? static_cast<size_t>(argc - 2) : 0);
    if (strcmp(name, "say") == 0 && !args.empty()) return Say(args[0], "", 0, 0);
    for (auto list : {ExecTriggers(), OpenTriggers(), PathTriggers(), NetTriggers(), SocketTriggers(), EscapeTriggers(), CgroupTriggers(), DnsTriggers()}) {
        for (const Trigger& trigger : list) {
            if (strcmp(name, trigger.name) == 0 && args.size() >= trigger.args) return trigger.run(args);
            if (*name == 0) fprintf(stderr, "triggers %s %s\n", trigger.name, trigger.usage);
        }
    }
    errno = EINVAL;
    return Setup(name);
}

}  // namespace
}  // namespace stockade::triggers

int main(int argc, char** argv) { return stockade::triggers::Main(argc, argv); }
