#include "userspace/decode/redact.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <memory>

namespace stockade::decode {
namespace {

// Names of options and variables whose value is a secret.
#define SK_SECRET_NAME                                                                        \
    "(?:pass(?:word|wd|phrase)?|pw|pwd|token|secret|credentials?|api[-_]?key|access[-_]?key|" \
    "private[-_]?key|auth[-_]?key|account[-_]?key|bearer)"

struct Pattern {
    const char* find;
    const char* replace;
};

// Lengths are below those of the real tokens, because an argument may have been cut.
constexpr Pattern kPatterns[] = {
    {"(?i)^(--?(?:[a-z0-9]+[-_])*" SK_SECRET_NAME "(?:[-_][a-z0-9]+)*=).+", "\\1[redacted]"},
    {"(?i)\\b((?:[a-z0-9]+_)*" SK_SECRET_NAME "(?:_[a-z0-9]+)*=)[^\\s&;]+", "\\1[redacted]"},
    {"(?i)(authorization:\\s*(?:[a-z]+\\s+)?)[^\\s'\"]+", "\\1[redacted]"},
    {"(?i)(\\bbearer\\s+)[^\\s'\"]+", "\\1[redacted]"},
    {"([a-zA-Z][a-zA-Z0-9+.-]*://[^/\\s:@]*:)[^/\\s@]+@", "\\1[redacted]@"},
    {"\\b(?:AKIA|ASIA)[0-9A-Z]{8,}", "[redacted]"},
    {"\\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|npm_|pypi-|sk-|sk_live_|hf_|AIza)"
     "[A-Za-z0-9_-]{12,}", "[redacted]"},
    {"\\beyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]+(?:\\.[A-Za-z0-9_-]*)?", "[redacted]"},
    {"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*", "[redacted]"},
};

// The value is the next argument.
constexpr char kNextIsSecret[] =
    "(?i)^--?(?:[a-z0-9]+[-_])*" SK_SECRET_NAME "(?:[-_][a-z0-9]+)*$";

class Redactor {
  public:
    Redactor() : set_(Options(), RE2::UNANCHORED), next_(kNextIsSecret, Options()) {
        for (const Pattern& pattern : kPatterns) {
            (void)set_.Add(pattern.find, nullptr);  // a wrong pattern fails the unit test
            one_.push_back(std::make_unique<RE2>(pattern.find, Options()));
        }
        (void)set_.Compile();
    }

    bool NextIsSecret(const std::string& argument) const {
        return RE2::PartialMatch(argument, next_);
    }

    bool Redact(std::string* argument) const {
        std::vector<int> hits;
        if (!set_.Match(*argument, &hits)) return false;
        const std::string before = *argument;
        for (int hit : hits) RE2::GlobalReplace(argument, *one_[hit], kPatterns[hit].replace);
        return *argument != before;
    }

  private:
    // Latin-1: arguments are bytes, and invalid UTF-8 must not end the search.
    static RE2::Options Options() {
        RE2::Options options(RE2::Latin1);
        options.set_log_errors(false);
        return options;
    }

    RE2::Set set_;
    const RE2 next_;
    std::vector<std::unique_ptr<RE2>> one_;
};

}  // namespace

int RedactArgv(std::vector<std::string>* argv) {
    static const Redactor* const redactor = new Redactor;  // for ever: used until exit
    int changed = 0;
    bool secret = false;
    for (size_t i = 0; i < argv->size(); ++i) {
        std::string& argument = (*argv)[i];
        // An option is not a value: `--password --verbose` prompts for it.
        if (secret && !argument.empty() && argument[0] != '-') {
            argument = "[redacted]";
            secret = false;
            ++changed;
            continue;
        }
        secret = i > 0 && redactor->NextIsSecret(argument);
        if (redactor->Redact(&argument)) ++changed;
    }
    return changed;
}

}  // namespace stockade::decode
