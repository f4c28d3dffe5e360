#include "userspace/model/reason.h"

#include <gtest/gtest.h>

#include "bpf/wire/kinds.h"
#include "userspace/model/coverage.h"
#include "userspace/model/names.h"
#include "userspace/model/operation.h"

namespace stockade::model {
namespace {

v1::Event FileEvent(const char* code, const char* path) {
    v1::Event event;
    event.set_code(code);
    event.set_verdict("deny");
    event.mutable_file()->set_op("open-read");
    event.mutable_file()->set_path(path);
    return event;
}

v1::Event NetEvent(const char* code, const char* op, const char* family, const char* type,
                   const char* address, uint32_t port) {
    v1::Event event;
    event.set_code(code);
    event.set_verdict("deny");
    v1::Net* net = event.mutable_net();
    net->set_op(op);
    net->set_family(family);
    net->set_type(type);
    net->set_address(address);
    net->set_port(port);
    return event;
}

TEST(Reason, AnEndpointHasTheNameThatIsKnownOfIt) {
    v1::Event event = NetEvent("network.connect", "connect", "inet", "stream", "192.0.2.1", 443);
    EXPECT_EQ(ObjectOf(event), "192.0.2.1:443");
    event.mutable_net()->set_host_name("led.test");
    EXPECT_EQ(ObjectOf(event), "led.test at 192.0.2.1:443");
    event.mutable_net()->set_tls_name("asked.test");
    EXPECT_EQ(ObjectOf(event), "asked.test at 192.0.2.1:443") << "what it was refused for";
}

TEST(Reason, EveryCodeHasASentenceWithItsObject) {
    for (const Name& code : Codes()) {
        const std::string sentence = ReasonSentence(code.number, "OBJECT");
        EXPECT_FALSE(sentence.empty()) << code.text;
        EXPECT_EQ(sentence.find("%s"), std::string::npos) << sentence;
        EXPECT_EQ(ReasonSentence(code.number, "").find(": "), std::string::npos) << code.text;
    }
    EXPECT_EQ(ReasonSentence(SK_CODE_READ_NOT_ALLOWED, "/etc/shadow"),
              "the policy does not allow reading /etc/shadow");
    EXPECT_EQ(ReasonSentence(SK_CODE_ESCAPE, ""), "needs a grant");
    EXPECT_EQ(ReasonSentence(9999, "x"), "");
    // The object is no format.
    EXPECT_EQ(ReasonSentence(SK_CODE_READ_NOT_ALLOWED, "/%s%n"),
              "the policy does not allow reading /%s%n");
}

TEST(Suggestion, IsALineOfThePolicy) {
    EXPECT_EQ(Suggestion(FileEvent("files.read", "/etc/shadow")), "files.read: [/etc/shadow]");
    v1::Event query;
    query.set_code("dns.server");
    query.mutable_dns()->set_server("10.96.0.10");
    EXPECT_EQ(Suggestion(query), "dns.resolvers: [10.96.0.10]");
    EXPECT_EQ(Suggestion(FileEvent("files.write", "/a b, c")), "files.write: ['/a b, c']");
    EXPECT_EQ(Suggestion(FileEvent("files.write", "/it's")), "files.write: [\"/it's\"]");
    EXPECT_EQ(Suggestion(FileEvent("files.read", "/a*b[1]")), R"(files.read: ['/a\*b\[1\]'])");
    EXPECT_EQ(Suggestion(FileEvent("files.read", "/it's?")), R"(files.read: ['/it''s\?'])");
    EXPECT_EQ(Suggestion(FileEvent("files.read", "/proc/49/environ")), "files.read: [/proc/self/environ]");
    EXPECT_EQ(Suggestion(FileEvent("files.read", "/proc/49x")), "files.read: [/proc/49x]");
    EXPECT_EQ(Suggestion(NetEvent("network.connect", "connect", "inet", "stream", "10.0.0.1", 443)),
              "network.allow: [{cidr: \"10.0.0.1/32\", ports: [443]}]");
    EXPECT_EQ(Suggestion(NetEvent("network.connect", "connect", "inet6", "stream", "2001:db8::1", 1)),
              "network.allow: [{cidr: \"2001:db8::1/128\", ports: [1]}]");
    EXPECT_EQ(Suggestion(NetEvent("network.connect", "connect", "inet", "stream", "127.0.0.1", 80)),
              "network.loopback: [80]");
    EXPECT_EQ(Suggestion(NetEvent("network.socket", "socket", "packet", "raw", "", 0)),
              "grants: [packet_socket]");
    EXPECT_EQ(Suggestion(NetEvent("network.socket", "socket", "inet", "raw", "", 0)),
              "grants: [raw_socket]");
}

TEST(Suggestion, IsEmptyWhereNoLineHelps) {
    EXPECT_EQ(Suggestion(FileEvent("files.read_denied", "/x")), "");
    v1::Event cut = FileEvent("files.read", ".../a");
    cut.mutable_file()->mutable_path_detail()->set_truncated(true);
    EXPECT_EQ(Suggestion(cut), "");
    v1::Event escaped = FileEvent("files.read", "/a\\x0a");
    escaped.mutable_file()->mutable_path_detail()->set_escaped(true);
    EXPECT_EQ(Suggestion(escaped), "");
    EXPECT_EQ(Suggestion({}), "");
}

TEST(Suggestion, EveryEscapeButLeavingHasItsGrant) {
    for (const Name& op : EscapeOps()) {
        v1::Event event;
        event.set_code("escape");
        event.mutable_escape()->set_op(std::string(op.text));
        EXPECT_EQ(Suggestion(event).empty(), op.text == "left-cgroup" || op.text == "system-call") << op.text;
    }
}

TEST(Operation, EveryOperationOfTheWireHasARow) {
    for (const Name& op : FileOps()) {
        v1::Event event;
        event.mutable_file()->set_op(std::string(op.text));
        const auto row = FindOperation(OperationOf(event));
        ASSERT_TRUE(row.has_value()) << op.text;
        EXPECT_EQ(InfoOf(*row).section, "files") << op.text;
    }
    for (const Name& op : NetOps()) {
        EXPECT_TRUE(FindOperation(OperationOf(
            NetEvent("", std::string(op.text).c_str(), "inet", "stream", "", 0)))) << op.text;
    }
    for (const Name& op : EscapeOps()) {
        if (op.text == "system-call") continue;  // refused by another lock; judged by none of ours, so in no row
        v1::Event event;
        event.mutable_escape()->set_op(std::string(op.text));
        EXPECT_TRUE(FindOperation(OperationOf(event))) << op.text;
    }
    v1::Event fork;
    fork.mutable_fork();
    EXPECT_EQ(OperationOf(fork), "");
}

}  // namespace
}  // namespace stockade::model
