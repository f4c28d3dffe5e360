#include "userspace/cmd/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"

namespace stockade::cmd {
namespace {

class ConfigFile : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_config_XXXXXX";
        close(mkstemp(name));
        path_ = name;
    }
    void TearDown() override { unlink(path_.c_str()); }
    StatusOr<Config> Load(const std::string& text) {
        std::ofstream(path_) << text;
        return LoadConfig(path_, true);
    }
    std::string path_;
};

TEST_F(ConfigFile, AMissingFileIsAnErrorOnlyWhenItWasNamed) {
    EXPECT_TRUE(LoadConfig("/nonexistent/config.yaml", false).ok());
    EXPECT_FALSE(LoadConfig("/nonexistent/config.yaml", true).ok());
}

TEST_F(ConfigFile, ValuesAreTakenAndTheRestHasDefaults) {
    auto config =
        Load("runtime_dir: /run/x\nuid_range: [100000, 50]\nkills_per_minute: 3\npolicies_dir: /p\n");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->socket_path(), "/run/x/agent.sock");
    EXPECT_EQ(config->uid_first, 100000u);
    EXPECT_EQ(config->uid_count, 50u);
    EXPECT_EQ(config->kills_per_minute, 3u);
    EXPECT_EQ(config->policy_dirs, std::vector<std::string>{"/p"});
    EXPECT_EQ(config->default_policy, "networkless");
    EXPECT_EQ(config->memory_max_mib, 2048u);
    EXPECT_EQ(config->swap_max_mib, 0u);
    EXPECT_EQ(config->pids_max, 1024u);
    auto limits = Load("memory_max_mib: 0\nswap_max_mib: 7\npids_max: 50\ncpu_max_percent: 150\n");
    ASSERT_TRUE(limits.ok()) << limits.status();
    EXPECT_EQ(limits->memory_max_mib, 0u);
    EXPECT_EQ(limits->swap_max_mib, 7u);
    EXPECT_EQ(limits->pids_max, 50u);
    EXPECT_EQ(limits->cpu_max_percent, 150u);
    EXPECT_TRUE(Load("").ok());
}

TEST_F(ConfigFile, MetricsAndApiHaveSectionsOfTheirOwn) {
    auto config = Load("");
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->metrics.listen, "127.0.0.1:9464");
    EXPECT_FALSE(config->metrics.named);
    EXPECT_TRUE(config->api.policies.empty());
    config =
        Load("metrics: {listen: \"[::1]:1\"}\napi: {group: tools, policies: [networkless, python-tool]}\n");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->metrics.listen, "[::1]:1");
    EXPECT_TRUE(config->metrics.named && config->metrics.on());
    EXPECT_EQ(config->api.group, "tools");
    EXPECT_EQ(config->api.policies, (std::vector<std::string>{"networkless", "python-tool"}));
    config = Load("metrics: {listen: off}\n");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_FALSE(config->metrics.on());
    const std::pair<const char*, const char*> cases[] = {
        {"metrics: {listen: 9464}\n", ":1:19: metrics.listen: '9464' is no address with a port"},
        {"metrics: {listn: off}\n", ":1:11: unknown key listn in metrics; did you mean 'listen'?"},
        {"metrics: off\n", "metrics takes keys and values"},
        {"api:\n  policies: networkless\n", ":2:13: api.policies takes a list of names"},
        {"api: {policies: [/etc/x.yaml]}\n", "api.policies takes names of policies, not files"},
        {"api: {policies: [a, a]}\n", "a stands there twice"},
        {"api: {group: \"\"}\n", "api.group takes the name of a group"},
        {"api: {groups: x}\n", "unknown key groups in api"},
        {"api: {sessions: all}\n", "api.sessions takes own or any"},
    };
    for (const auto& [text, error] : cases) {
        const auto loaded = Load(text);
        EXPECT_TRUE(absl::StrContains(loaded.status().message(), error)) << text << loaded.status();
    }
}

TEST_F(ConfigFile, ErrorsNameThePlace) {
    const std::pair<const char*, const char*> cases[] = {
        {"runtime_dir: /x\nruntme_dir: /y\n", ":2:1: unknown key runtme_dir"},
        {"uid_range: [0, 10]\n", "uid_range"},
        {"uid_range: [100000]\n", "two numbers"},
        {"backend: magic\n", "auto, signal or lsm"},
        {"cgroup_name: a/b\n", "cgroup_name"},
        {"memory_max_mib: 99999999999999\n", "too large"},
        {"kills_per_minute: many\n", ":1:19: kills_per_minute takes a whole number, not 'many'"},
        {"kills_per_minute: [1]\n", "kills_per_minute takes a single value"},
        {"policy_dirs: /p\n", ":1:14: policy_dirs takes a list"},
        {"\nbackend: lsm\nbackend: signal\n", ":3:1: duplicate key backend, first on line 2"},
        {"backend: lsm\nruntime_dir: run\n", ":2:14: runtime_dir takes an absolute path, not 'run'"},
        {"pin_dir: ''\n", "pin_dir takes an absolute path"},
        {"policy_dirs: [/a, b]\n", "policy_dirs takes an absolute path, not 'b'"},
        {"cgroup_name: ..\n", ":1:14: cgroup_name"},
        {"bakcend: lsm\n", ":1:1: unknown key bakcend; did you mean 'backend'?"},
        {"- a\n", "keys and values"},
        {"a: [\n", ":2:"},
    };
    for (const auto& [text, expected] : cases) {
        auto config = Load(text);
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_TRUE(absl::StrContains(config.status().message(), expected)) << config.status();
    }
}

// --- events ---

std::vector<ExporterKind> Kinds() {
    return {{"jsonl",
             {"path", "format"},
             [](const std::map<std::string, std::string>& options) {
                 return options.count("path") > 0 ? absl::OkStatus()
                                                  : absl::InvalidArgumentError("path is missing");
             }},
            {"kafka",
             {"hostport", "sasl", "tls", "password", "passwordfile"},
             [](const std::map<std::string, std::string>&) { return absl::OkStatus(); }}};
}

TEST_F(ConfigFile, EventsAreOffUntilSomebodyGetsThem) {
    EXPECT_TRUE(Config().events.exporters.empty());
    auto config = Load(
        "state_dir: /s\nevents:\n  exporters:\n    - {kind: jsonl, path: /x}\n"
        "    - {kind: jsonl, name: second, path: /y, format: ocsf}\n");
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_EQ(config->events.exporters.size(), 2u);
    EXPECT_EQ(config->events.exporters[0].name, "jsonl");
    EXPECT_EQ(config->events.exporters[1].name, "second");
    EXPECT_EQ(config->events.exporters[1].options.at("format"), "ocsf");
    EXPECT_EQ(config->spool_dir(), "/s/spool");
    EXPECT_EQ(config->node_key_path(), "/s/node.key");
    EXPECT_EQ(config->events.spool_max_bytes, uint64_t{4} << 30);
    EXPECT_TRUE(CheckExporters(config->events, Kinds()).ok());
    config = Load(
        "events:\n  spool: {dir: /d, max_bytes: 100000000}\n  node_key: /k\n"
        "  exporters: [{kind: jsonl, path: /x}]\n");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->spool_dir(), "/d");
    EXPECT_EQ(config->node_key_path(), "/k");
    EXPECT_EQ(config->events.spool_max_bytes, 100'000'000u);
}

TEST_F(ConfigFile, ErrorsOfEventsNameThePlace) {
    const std::pair<const char*, const char*> cases[] = {
        {"evnts: {}\n", ":1:1: unknown key evnts; did you mean 'events'?"},
        {"events: 3\n", ":1:9: events takes keys and values"},
        {"events: {}\n", "needs exporters"},
        {"events:\n  spol: {}\n", ":2:3: unknown key spol in events; did you mean 'spool'?"},
        {"events:\n  spool: {max_byte: 1}\n", ":2:11: unknown key max_byte in events.spool"},
        {"events:\n  spool: {max_bytes: 5}\n  exporters: [{kind: jsonl}]\n", ":2:22: max_bytes takes"},
        {"events:\n  spool: {max_bytes: -5}\n  exporters: [{kind: jsonl}]\n", ":2:22: max_bytes takes"},
        {"events:\n  spool: {dir: x}\n", "dir takes an absolute path"},
        {"events:\n  exporters: [{path: /x}]\n", ":2:15: an exporter needs a kind"},
        {"events:\n  exporters: [{kind: jsonl, path: [a]}]\n", "path takes a single value"},
        {"events:\n  exporters: [{kind: jsonl, path: /x, path: /y}]\n", "duplicate key path"},
        {"events:\n  exporters: [{kind: a, name: \"b c\"}]\n", "name: letters"},
        {"events:\n  exporters: [{kind: a}, {kind: a}]\n", "a second exporter named a"},
    };
    for (const auto& [text, expected] : cases) {
        const auto config = Load(text);
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_TRUE(absl::StrContains(config.status().message(), expected)) << config.status();
        EXPECT_TRUE(absl::StrContains(config.status().message(), path_)) << config.status();
    }
}

TEST_F(ConfigFile, OptionsOfExportersAreCheckedByTheirKind) {
    const std::pair<const char*, const char*> cases[] = {
        {"events:\n  exporters:\n    - {kind: kafak}\n",
         ":3:7: no exporter of kind kafak; did you mean 'kafka'?"},
        {"events:\n  exporters:\n    - kind: kafka\n      hostprt: x\n",
         ":4:7: unknown key hostprt of a kafka exporter; did you mean 'hostport'?"},
        {"events:\n  exporters:\n    - kind: jsonl\n", ":3:7: path is missing"},
        {"events:\n  exporters:\n    - {kind: jsonl, path: /var/log/a}\n    - {kind: jsonl, name: b, path: /var/log/../log/a}\n",
         ":4:30: exporter jsonl ("},
        {"events:\n  exporters:\n    - {kind: jsonl, path: /x.1}\n    - {kind: jsonl, name: b, path: /x}\n", ":4:30: exporter jsonl ("},
        {"events:\n  exporters:\n    - {kind: jsonl, path: \"-\"}\n    - {kind: jsonl, name: b, path: \"-\"}\n", "writes - already"},
    };
    for (const auto& [text, expected] : cases) {
        const auto config = Load(text);
        ASSERT_TRUE(config.ok()) << config.status();
        const Status status = CheckExporters(config->events, Kinds());
        EXPECT_TRUE(absl::StrContains(status.message(), expected)) << status;
    }
}

TEST_F(ConfigFile, SecretsInTheFileAreWarnedOfAndShownNowhere) {
    const auto config =
        Load("events:\n  exporters:\n    - kind: kafka\n      sasl: PLAIN\n      password: hunter2\n");
    ASSERT_TRUE(config.ok()) << config.status();
    const std::vector<std::string> warnings = ExporterWarnings(config->events);
    ASSERT_EQ(warnings.size(), 2u);
    EXPECT_TRUE(absl::StrContains(warnings[0], ":5:7: ") && absl::StrContains(warnings[0], "passwordfile"))
        << warnings[0];
    EXPECT_TRUE(absl::StrContains(warnings[1], "in the clear")) << warnings[1];
    for (const std::string& warning : warnings) EXPECT_FALSE(absl::StrContains(warning, "hunter2"));
    EXPECT_FALSE(absl::StrContains(config->events.Text(), "hunter2"));
}

TEST_F(ConfigFile, RulesAreOnAndCanBeSet) {
    auto config = Load("");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(config->rules.enabled);
    EXPECT_EQ(config->rules.dirs.size(), 2u);
    const std::string before = config->rules.Text();
    config = Load("rules:\n  enabled: false\n  dry_run: true\n  dirs: [/a, /b]\n  disable: [x]\n  max_groups: 7\n"
                  "  max_events: 100\n");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_FALSE(config->rules.enabled);
    EXPECT_TRUE(config->rules.dry_run);
    EXPECT_EQ(config->rules.dirs, (std::vector<std::string>{"/a", "/b"}));
    EXPECT_EQ(config->rules.disable, std::vector<std::string>{"x"});
    EXPECT_EQ(config->rules.max_groups, 7u);
    EXPECT_EQ(config->rules.max_events, 100u);
    EXPECT_NE(config->rules.Text(), before);
}

TEST_F(ConfigFile, ErrorsOfRulesNameThePlace) {
    const std::pair<const char*, const char*> cases[] = {
        {"rules: yes\n", ":1:8: rules takes keys and values"},
        {"rules:\n  dir: [/a]\n", ":2:3: unknown key dir in rules; did you mean 'dirs'?"},
        {"rules:\n  dirs: /a\n", ":2:9: rules.dirs takes a list"},
        {"rules:\n  dirs: [a]\n", ":2:10: rules.dirs takes absolute paths"},
        {"rules:\n  enabled: maybe\n", ":2:12: rules.enabled takes true or false"},
        {"rules:\n  max_groups: 0\n", ":2:15: rules.max_groups takes a whole number from 1 to 4096"},
        {"rules:\n  max_events: 99999999\n", "from 1 to 2000000"},
        {"rules:\n  dirs: [/a]\n  dirs: [/b]\n", ":3:3: duplicate key dirs, first on line 2"},
    };
    for (const auto& [text, expected] : cases) {
        const auto config = Load(text);
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_TRUE(absl::StrContains(config.status().message(), expected)) << config.status();
    }
}

TEST_F(ConfigFile, PodsAreNobodysUntilASocketIsNamed) {
    auto config = Load("");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_FALSE(config->kubernetes.on());
    EXPECT_EQ(config->kubernetes.labels.session, "stockade.dev/session");
    const std::string before = config->kubernetes.Text();
    config = Load("kubernetes:\n  nri: /run/nri.sock\n  index: \"07\"\n  labels: clawql\n  policies: [a, \"*\"]\n"
                  "  resolvers: [10.96.0.10, \"fd00::a\"]\n  unprotected: kill\n"
                  "  namespaces:\n    tools: {policy: python-tool, policies: [b]}\n    agents:\n");
    ASSERT_TRUE(config.ok()) << config.status();
    const KubernetesConfig& kubernetes = config->kubernetes;
    EXPECT_TRUE(kubernetes.on());
    EXPECT_EQ(kubernetes.nri, "/run/nri.sock");
    EXPECT_EQ(kubernetes.index, "07");
    EXPECT_EQ(kubernetes.labels.session, "clawql.io/session");
    EXPECT_EQ(kubernetes.policies, (std::vector<std::string>{"a", "*"}));
    EXPECT_EQ(kubernetes.resolvers.size(), 2u);
    EXPECT_TRUE(kubernetes.kill_unprotected);
    ASSERT_EQ(kubernetes.namespaces.size(), 2u);
    EXPECT_EQ(kubernetes.namespaces.at("tools").policy, "python-tool");
    EXPECT_EQ(kubernetes.namespaces.at("agents").policy, "");
    EXPECT_NE(kubernetes.Text(), before);
}

TEST_F(ConfigFile, ErrorsOfKubernetesNameThePlace) {
    const std::pair<const char*, const char*> cases[] = {
        {"kubernets: {}\n", ":1:1: unknown key kubernets; did you mean 'kubernetes'?"},
        {"kubernetes: yes\n", ":1:13: kubernetes takes keys and values"},
        {"kubernetes:\n  nir: /x\n", ":2:3: unknown key nir in kubernetes; did you mean 'nri'?"},
        {"kubernetes:\n  nri: nri.sock\n", ":2:8: kubernetes.nri takes the absolute path"},
        {"kubernetes:\n  index: 7\n", ":2:10: kubernetes.index takes two digits"},
        {"kubernetes:\n  labels: claw\n", ":2:11: kubernetes.labels takes the preset clawql, or keys"},
        {"kubernetes:\n  labels: {sesion: a}\n", ":2:12: unknown key sesion in kubernetes.labels; did you mean 'session'?"},
        {"kubernetes:\n  policies: a\n", ":2:13: kubernetes.policies takes a list"},
        {"kubernetes:\n  policies: [../a]\n", ":2:14: kubernetes.policies takes names"},
        {"kubernetes:\n  namespaces: [a]\n", "kubernetes.namespaces takes keys and values"},
        {"kubernetes:\n  namespaces: {a/b: {}}\n", ":2:16: 'a/b' is no name of a namespace"},
        {"kubernetes:\n  namespaces: {a: {polcy: x}}\n", "unknown key polcy in kubernetes.namespaces.a; did you mean 'policy'?"},
        {"kubernetes:\n  resolvers: [dns.local]\n", ":2:15: kubernetes.resolvers takes IP addresses"},
        {"kubernetes:\n  resolvers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4, 1.1.1.5]\n", "at most 4"},
        {"kubernetes:\n  unprotected: allow\n", ":2:16: kubernetes.unprotected takes report or kill"},
    };
    for (const auto& [text, expected] : cases) {
        const auto config = Load(text);
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_TRUE(absl::StrContains(config.status().message(), expected)) << config.status();
    }
}

}  // namespace
}  // namespace stockade::cmd
