// For tests of real clients: the world outside, a real resolver for its names, and an installation.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/dns/unbound.h"
#include "tests/dns/world.h"
#include "tests/tools/product.h"

namespace stockade::tests {

class DnsClients : public ::testing::Test {
  public:
    static constexpr char kUnbound[] = "127.0.0.78";
    // n0.fresh.test and so on, each with the next address of the world.
    static constexpr int kFreshNames = 1000;

  protected:
    static void SetUpTestSuite();
    static void TearDownTestSuite();
    void SetUp() override;

    // Any program, any file, and this name at these ports. `dns`: more members of the policy's dns section.
    static std::string Policy(const std::string& name, const std::string& allowed,
                              const std::string& dns = "", const std::string& ports = "80");
    static Ran Bash(const std::string& policy, const std::string& script);
    // Queries that reached the resolver, but for the first ones.
    static std::vector<std::string> AskedSince(size_t count);
    // /repo.git and /apt, of every host.
    static void PublishRepositories();

    static inline Product* product_;
    static inline World* world_;
    static inline std::unique_ptr<Unbound> unbound_;
};

}  // namespace stockade::tests
