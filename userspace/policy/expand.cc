#include "userspace/policy/expand.h"

#include "absl/strings/str_cat.h"
#include "userspace/policy/symlinks.h"

namespace stockade::policy {
namespace {

Token Literal(absl::string_view name) { return {TokenKind::kLiteral, std::string(name), {}}; }
Token Star() { return {TokenKind::kStar, "", {}}; }

bool StartsWith(const PathPattern& pattern, absl::string_view first, absl::string_view second) {
    return pattern.LiteralTokens() >= 2 && pattern.tokens[0].literal == first &&
           pattern.tokens[1].literal == second;
}

class Expander {
  public:
    Expander(int root_fd, Expansion& out) : root_fd_(root_fd), out_(out), links_(root_fd) {}

    Status Add(size_t index, const PathRule& rule) {
        StatusOr<PathPattern> parsed = ParsePattern(rule.pattern);
        if (!parsed.ok()) return Annotate(parsed.status(), ToString(rule.at));
        PathPattern pattern = *std::move(parsed);
        if (StartsWith(pattern, "proc", "self") || StartsWith(pattern, "proc", "thread-self")) {
            return AddProcSelf(index, rule, pattern);
        }
        out_.rules.push_back({pattern, index});
        if (root_fd_ < 0 || pattern.LiteralTokens() == 0 || pattern.tokens[0].literal == "proc")
            return absl::OkStatus();
        return AddTarget(index, rule, pattern);
    }

  private:
    Status AddProcSelf(size_t index, const PathRule& rule, PathPattern pattern) {
        std::vector<Token> process = {Literal("proc"), Star()};
        if (pattern.tokens[1].literal == "thread-self") {
            process.push_back(Literal("task"));
            process.push_back(Star());
        }
        pattern.tokens.erase(pattern.tokens.begin(), pattern.tokens.begin() + 2);
        pattern.tokens.insert(pattern.tokens.begin(), process.begin(), process.end());
        out_.resolutions.push_back({rule.pattern, pattern.ToText(), rule.at, ""});
        out_.rules.push_back({std::move(pattern), index});
        return absl::OkStatus();
    }

    Status AddTarget(size_t index, const PathRule& rule, const PathPattern& pattern) {
        const std::string prefix = pattern.LiteralPrefix();
        StatusOr<FollowedPath> followed = links_.Follow(prefix);
        if (!followed.ok()) {
            out_.resolutions.push_back({rule.pattern, "", rule.at, std::string(followed.status().message())});
            return absl::OkStatus();
        }
        if (followed->path == prefix) return absl::OkStatus();
        // A link that an untrusted user made must not widen what is allowed; a deny may follow it.
        if (followed->foreign && rule.allow != 0) {
            out_.resolutions.push_back({rule.pattern, "", rule.at,
                                        absl::StrCat("not followed to ", followed->path,
                                                     ": a link on the way belongs to another user")});
            return absl::OkStatus();
        }
        PathPattern target;
        for (absl::string_view name : SplitPath(followed->path)) target.tokens.push_back(Literal(name));
        target.tokens.insert(target.tokens.end(),
                             pattern.tokens.begin() + static_cast<long>(pattern.LiteralTokens()),
                             pattern.tokens.end());
        out_.resolutions.push_back({rule.pattern, target.ToText(), rule.at, ""});
        out_.rules.push_back({std::move(target), index});
        return absl::OkStatus();
    }

    int root_fd_;
    Expansion& out_;
    RootLinks links_;
};

}  // namespace

StatusOr<Expansion> ExpandRules(const ResolvedPolicy& policy, int root_fd) {
    Expansion out;
    Expander expander(root_fd, out);
    for (size_t i = 0; i < policy.paths.size(); ++i) SK_RETURN_IF_ERROR(expander.Add(i, policy.paths[i]));
    return out;
}

}  // namespace stockade::policy
