#include "userspace/dns/address_scope.h"

#include <gtest/gtest.h>

namespace stockade::dns {
namespace {

TEST(AddressScope, OnlyWhatTheWorldReaches) {
    for (const char* text : {"1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "203.0.113.9",
                             "2606:4700::1111", "2001:4860:4860::8888"}) {
        EXPECT_TRUE(IsPublicAddress(UpstreamAddress::Parse(text)->address)) << text;
    }
    for (const char* text : {"0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
                             "192.168.0.1", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1",
                             "::ffff:1.1.1.1", "64:ff9b::a00:1", "fe80::1", "fd00::1", "2002:a00:1::1", "2001::1", "ff02::1"}) {
        EXPECT_FALSE(IsPublicAddress(UpstreamAddress::Parse(text)->address)) << text;
    }
}

}  // namespace
}  // namespace stockade::dns
