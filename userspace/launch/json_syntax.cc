#include "userspace/launch/json_syntax.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stockade::launch {
namespace {

// protobuf's own bound; real profiles are five levels deep.
constexpr int kMaxDepth = 100;

class Checker {
  public:
    explicit Checker(absl::string_view text) : text_(text) {}

    Status Run() {
        SK_RETURN_IF_ERROR(Value(0));
        Space();
        return at_ == text_.size() ? absl::OkStatus() : Bad("nothing more is expected here");
    }

  private:
    Status Bad(absl::string_view what) const {
        const absl::string_view before = text_.substr(0, at_);
        const auto line = std::count(before.begin(), before.end(), '\n') + 1;
        const size_t start = before.rfind('\n');
        const size_t column = at_ - (start == before.npos ? 0 : start + 1) + 1;
        return absl::InvalidArgumentError(absl::StrCat(line, ":", column, ": not JSON: ", what));
    }

    char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void Space() {
        while (at_ < text_.size() && absl::StrContains(" \t\r\n", text_[at_])) ++at_;
    }
    bool Take(char c) {
        Space();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    Status Value(int depth) {
        if (depth > kMaxDepth) return Bad("nested too deep");
        Space();
        switch (Peek()) {
            case '{':
                return Members('}', depth);
            case '[':
                return Members(']', depth);
            case '"':
                return String();
            default:
                return Word();
        }
    }

    // Of an object or a list.
    Status Members(char close, int depth) {
        ++at_;
        if (Take(close)) return absl::OkStatus();
        while (true) {
            if (close == '}') {
                Space();
                if (Peek() != '"') return Bad("a key in double quotes is expected");
                SK_RETURN_IF_ERROR(String());
                if (!Take(':')) return Bad("':' is expected");
            }
            SK_RETURN_IF_ERROR(Value(depth + 1));
            if (Take(close)) return absl::OkStatus();
            if (!Take(',')) return Bad(absl::StrCat("',' or '", std::string(1, close), "' is expected"));
        }
    }

    Status String() {
        for (++at_; at_ < text_.size(); ++at_) {
            if (text_[at_] == '"') {
                ++at_;
                return absl::OkStatus();
            }
            if (static_cast<unsigned char>(text_[at_]) < 0x20) return Bad("a control character in a text");
            if (text_[at_] == '\\') ++at_;
        }
        at_ = text_.size();
        return Bad("the text has no end");
    }

    // Numbers loosely: what is none fails when it is made a value.
    Status Word() {
        const size_t start = at_;
        while (absl::ascii_isalnum(static_cast<unsigned char>(Peek())) || Peek() == '-' || Peek() == '+' ||
               Peek() == '.') {
            ++at_;
        }
        const absl::string_view word = text_.substr(start, at_ - start);
        if (word == "true" || word == "false" || word == "null") return absl::OkStatus();
        if (!word.empty() && (word[0] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(word[0]))))
            return absl::OkStatus();
        at_ = start;
        return Bad("a value is expected");
    }

    const absl::string_view text_;
    size_t at_ = 0;
};

}  // namespace

Status CheckJsonSyntax(absl::string_view text) { return Checker(text).Run(); }

}  // namespace stockade::launch
