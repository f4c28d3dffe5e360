#include "tests/dns/clients_fixture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stockade::tests {
namespace {

std::string Zone() {
    std::string zone = R"($TTL 60
@            IN SOA ns.test. admin.test. 1 3600 600 86400 120
@            IN NS ns.test.
ns           IN A 127.0.0.78
one.egress   IN A 198.51.100.2
two.other    IN A 198.51.100.3
both.egress  IN A 198.51.100.4
both.egress  IN AAAA 2001:db8::2
ttl0.egress  0 IN A 198.51.100.5
ttl1.egress  1 IN A 198.51.100.6
meta.egress  IN A 169.254.169.254
mixed.egress IN A 198.51.100.9
mixed.egress IN A 169.254.169.254
mixed.egress IN A 10.1.2.3
mixed.egress IN A 127.0.0.1
hop0.cdn     IN A 198.51.100.7
)";
    for (int i = 1; i < 10; ++i) {
        absl::StrAppend(&zone, "hop", i, ".cdn IN CNAME hop", i - 1, ".cdn\n");
        absl::StrAppend(&zone, "hop", i, ".egress IN CNAME hop", i - 1, ".cdn\n");
    }
    for (int i = 0; i < 60; ++i) absl::StrAppend(&zone, "many.egress IN A ", World::Host(20 + i), "\n");
    for (int i = 0; i < 9; ++i) absl::StrAppend(&zone, "big.egress IN TXT ", i, std::string(199, 't'), "\n");
    constexpr int kHosts = World::kLastHost - World::kFirstHost + 1;
    for (int i = 0; i < DnsClients::kFreshNames; ++i)
        absl::StrAppend(&zone, "n", i, ".fresh IN A ", World::Host(World::kFirstHost + i % kHosts), "\n");
    return zone;
}

}  // namespace

void DnsClients::SetUpTestSuite() {
    product_ = new Product;
    world_ = new World;
    ASSERT_TRUE(world_->status().ok()) << world_->status();
    // Larger answers are truncated, whatever the stub says that it takes.
    auto unbound = Unbound::Start(
        {.zone = Zone(), .address = kUnbound, .port = 53, .more = "    log-queries: yes\n    max-udp-size: 512\n"});
    ASSERT_TRUE(unbound.ok()) << unbound.status();
    unbound_ = *std::move(unbound);
}

void DnsClients::TearDownTestSuite() {
    delete product_;
    product_ = nullptr;
    unbound_.reset();
    delete world_;
    world_ = nullptr;
}

void DnsClients::SetUp() { ASSERT_NE(unbound_, nullptr); }

std::string DnsClients::Policy(const std::string& name, const std::string& allowed, const std::string& dns,
                               const std::string& ports) {
    return product_->Put(
        name + ".yaml",
        absl::StrCat(
            "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
            "}\nspec:\n  violation: deny\n  exec: {allow: [/usr/**, /tmp/**], libraries: [/usr/**]}\n"
            "  files: {read: [/**], write: [/tmp/**, /dev/**]}\n  network: {allow: [{name: \"",
            allowed, "\", ports: [", ports, "]}]}\n  dns: {resolvers: [", kUnbound, "]", dns, "}\n"));
}

Ran DnsClients::Bash(const std::string& policy, const std::string& script) {
    return product_->Run(policy, {"bash", "-c", script});
}

std::vector<std::string> DnsClients::AskedSince(size_t count) {
    std::vector<std::string> asked = unbound_->Asked();
    asked.erase(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(std::min(count, asked.size())));
    return asked;
}

void DnsClients::PublishRepositories() {
    const std::string www = product_->Path("www");
    world_->Publish(www);
    const std::string make = product_->Put("make_repositories", R"sh(set -e
test ! -e "$1" || exit 0
mkdir -p "$1/apt" "$1/work" "$1/package/DEBIAN"
cd "$1/work" && git init -q && echo 'by git' >file && git add file
git -c user.name=a -c user.email=a@test commit -q -m one
git clone -q --bare "$1/work" "$1/repo.git" && git -C "$1/repo.git" update-server-info
cd "$1"
printf '%s\n' 'Package: stockade-probe' 'Version: 1' 'Architecture: all' 'Maintainer: a <a@test>' 'Description: none' >package/DEBIAN/control
dpkg-deb --root-owner-group --build package apt/stockade-probe_1_all.deb
cd apt
{ cat ../package/DEBIAN/control; echo "Filename: ./stockade-probe_1_all.deb"
  echo "Size: $(stat -c %s stockade-probe_1_all.deb)"; echo "SHA256: $(sha256sum stockade-probe_1_all.deb | cut -d' ' -f1)"; } >Packages
{ echo "Date: $(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S UTC')"; echo SHA256:
  echo " $(sha256sum Packages | cut -d' ' -f1) $(stat -c %s Packages) Packages"; } >Release
)sh");
    const std::string log = product_->Path("make.log");
    ASSERT_EQ(Wait(Start({.argv = {"/bin/bash", make, www}, .out = log, .err = log})), 0) << ReadText(log);
}

}  // namespace stockade::tests
