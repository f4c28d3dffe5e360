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

}  // namespace
}  // namespace stockade::cmd
