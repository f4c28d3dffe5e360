#include "tests/bench/policy_text.h"

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stockade::bench {
namespace {

// xorshift64: the same patterns in every run.
class Dice {
  public:
    explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
    uint64_t Below(uint64_t bound) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ % bound;
    }
    template <size_t N>
    const char* Of(const std::array<const char*, N>& words) {
        return words[Below(N)];
    }

  private:
    uint64_t state_;
};

constexpr std::array kTops = {"/usr/lib/python3/dist-packages",
                              "/usr/lib/x86_64-linux-gnu",
                              "/usr/share",
                              "/opt/tool/lib",
                              "/usr/local/lib/node_modules",
                              "/etc",
                              "/srv/data",
                              "/var/tmp/cache"};
constexpr std::array kNames = {"numpy",  "requests", "urllib3", "ssl",   "certs",  "perl5",
                               "locale", "fonts",    "icu",     "gconv", "engine", "model"};
constexpr std::array kTails = {"/**", "/*.so", "/*.py", "/data/*", "/*/index.json", ""};
constexpr std::array kSecrets = {"id_rsa", "credentials", "token", "kubeconfig", "netrc", "secring"};

std::string ReadPattern(Dice& dice, int number) {
    return absl::StrCat(dice.Of(kTops), "/", dice.Of(kNames), "-", number, dice.Of(kTails));
}

std::string List(const std::vector<std::string>& patterns) {
    return absl::StrCat("[",
                        absl::StrJoin(patterns, ", ",
                                      [](std::string* out, const std::string& pattern) {
                                          absl::StrAppend(out, "\"", pattern, "\"");
                                      }),
                        "]");
}

}  // namespace

std::string PolicyText(const Stage& stage, const PolicyShape& shape) {
    Dice dice(shape.seed);
    std::vector<std::string> exec = {stage.step()}, read = {stage.dir() + "/data/**"}, write,
                             deny = {"**/.ssh/**"};
    for (int i = 3; i < shape.patterns; i++) {
        switch (dice.Below(10)) {
            case 0:
                exec.push_back(absl::StrCat("/usr/bin/", dice.Of(kNames), i, dice.Below(2) ? "*" : ""));
                break;
            case 1:
                write.push_back(absl::StrCat("/out/", dice.Of(kNames), i, dice.Of(kTails)));
                break;
            case 2:
                deny.push_back(absl::StrCat("**/", dice.Of(kSecrets), i));
                break;
            default:
                read.push_back(ReadPattern(dice, i));
        }
    }
    // kill-sandbox, so that Landlock judges no exec: the launcher would leave it to the kernel program.
    return absl::StrCat(
        "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: bench}\nspec:\n  extends: []\n"
        "  violation: kill-sandbox\n  exec: {allow: ",
        List(exec), "}\n  files: {read: ", List(read), ", write: ", List(write), ", deny: ", List(deny),
        "}\n  network: {allow: [{cidr: 10.0.0.0/8, ports: [443]}, {cidr: 192.0.2.0/24}], loopback: [",
        shape.port, "]}\n  record: {exec: violations, network: violations, files: ",
        shape.record_files ? "all" : "violations", "}\n");
}

}  // namespace stockade::bench
