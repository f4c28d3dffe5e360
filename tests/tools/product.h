// For tests of the whole product: an installation of their own (configuration, agent, pins, cgroup), `stockade`
// run in it as a person runs it, and what its events say.
//
//   Product product;
//   Ran ran = product.Run("python-tool", {"python3", "-c", "print(42)"});
//   EXPECT_EQ(ran.status, 0) << ran.err;
//   EXPECT_EQ(ran.Refusals(), IsEmpty());
#pragma once

#include <google/protobuf/struct.pb.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace stockade::tests {

using Json = google::protobuf::Value;

// Null (kind not set) when the text is no JSON.
Json ParseJson(const std::string& text);
// The member at a path such as "exec.path"; a string whatever its type, "" when there is none.
std::string At(const Json& value, const std::string& path);

// How a `stockade run` ended, and what it left behind.
struct Ran {
    int status = -1;  // as a shell says it
    std::string out;
    std::string err;
    Json result;               // of --result
    std::vector<Json> events;  // of --events

    // Events of what was refused, or would have been; each as "kind op path-or-address, verdict, outcome, lock".
    std::vector<std::string> Refusals() const;
    // The first refusal whose reason contains the text; null when there is none.
    Json Refusal(const std::string& text) const;
    // All that a failed expectation should show.
    std::string Text() const;
};

struct Command {
    std::vector<std::string> argv;
    std::string in = "/dev/null";
    std::string out, err;                 // files
    std::function<void()> in_child = {};  // after fork, before exec
};
pid_t Start(const Command& command);
// Waits; the status as a shell says it.
int Wait(pid_t pid);

// Where cgroup v2 is mounted.
std::string Cgroup2();
// Looks until it is true; false after `seconds`. Looking is not waiting by the clock: the answer decides.
bool Until(const std::function<bool()>& fn, int seconds = 30);
std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);
std::string SourcePath(const std::string& name);
std::string BinPath(const std::string& name);
// Any of /usr/local/bin, /usr/bin, /bin, which is all that a sandbox sees; "" when the program is not there.
std::string FindProgram(const std::string& name);

// One installation. Its agent is started by the first run, and stopped at the end.
class Product {
  public:
    explicit Product(const std::string& more_config = "");  // see Configure
    ~Product();
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;

    // Flags stand before the command; --events and --result are added. `policy` is a name or a file.
    Ran Run(const std::string& policy, const std::vector<std::string>& command,
            const std::vector<std::string>& flags = {});
    // `stockade` with these words and our configuration; streams in files of `tag`.
    pid_t StartStockade(const std::vector<std::string>& words, const std::string& tag,
                        const std::function<void()>& in_child = {});
    pid_t StartRun(const std::string& policy, const std::vector<std::string>& command, const std::string& tag,
                   const std::vector<std::string>& flags = {});
    // Collects what StartStockade or StartRun began.
    Ran Finish(pid_t pid, const std::string& tag);
    // Status and streams of one command that is no run.
    Ran Stockade(const std::vector<std::string>& words);

    std::string dir() const { return dir_; }  // below /tmp: not what the sandbox has at /tmp
    std::string Path(const std::string& name) const { return dir_ + "/" + name; }
    std::string config() const { return Path("config.yaml"); }
    // YAML lines, which take the place of those with the same key. The next agent reads them.
    void Configure(const std::string& lines);
    std::string pin_dir() const { return "/sys/fs/bpf/" + tag_; }
    // A file in our directory; its parents are made, and everybody may read it.
    std::string Put(const std::string& name, const std::string& text, int mode = 0644);
    std::string Get(const std::string& name) const { return ReadText(Path(name)); }

    pid_t AgentPid() const;  // 0 = none runs
    pid_t AwaitAgent(pid_t other_than);
    void StopAgent(int signo);
    // The process that keeps the only sandbox; 0 = there is none.
    pid_t ShimPid() const;
    std::string Cgroup() const { return cgroup_; }  // of all our sandboxes
    // Names of our sandboxes' cgroups.
    std::vector<std::string> Sandboxes() const;
    // The one made ahead, which has no command and is in no list; empty when there is none.
    std::string Spare() const;
    // Every process below our cgroup.
    std::vector<pid_t> Processes() const;
    // What is left of ended sandboxes; empty when nothing is.
    std::string LeftOver() const;

  private:
    std::string dir_;
    std::string tag_;
    std::string cgroup_;
    int count_ = 0;
};

}  // namespace stockade::tests
