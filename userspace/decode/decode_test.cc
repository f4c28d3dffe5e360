#include "userspace/decode/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "userspace/decode/test_records.h"
#include "userspace/model/json.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DecodeTest : public testing::Test {
  protected:
    template <typename Record>
    v1::Event Decode(const Record& record) {
        v1::Event event;
        const Status status = decoder_.Decode(Bytes(record), &event);
        EXPECT_TRUE(status.ok()) << status;
        return event;
    }

    template <typename Record>
    void ExpectRefused(const Record& record, Reason reason) {
        const uint64_t before = decoder_.count(reason);
        v1::Event event;
        event.set_id("left over");
        EXPECT_FALSE(decoder_.Decode(Bytes(record), &event).ok()) << ToString(reason);
        EXPECT_EQ(decoder_.count(reason), before + 1) << ToString(reason);
        EXPECT_EQ(event.ByteSizeLong(), 0u);
    }

    Decoder decoder_{{.node = "n1", .wall_offset_ns = 1'000'000'000'000'000'000,
                      .lookup = TestLookup()}};
};

// The head of each golden line; what follows differs.
constexpr char kEnvelope[] =
    R"("time":"2001-09-09T01:46:45.000000000Z","boot_ns":"5000000000","node":"n1",)";
constexpr char kSandbox[] =
    R"("sandbox":{"id":"sbx_01ARYZ6S410000000000000001","session":"s1","tool":"python","runtime":"native"},)"
    R"("policy":{"name":"python-tool","hash":"1122334455667788aa"},)"
    R"("process":{"pid":100,"tid":100,"start_boot_ns":"4000000000","comm":"python3","uid":1000},)";

std::string Golden(const std::string& kind, const std::string& rest) {
    return absl::StrCat(R"({"id":"sbx_01ARYZ6S410000000000000001.7",)", kEnvelope, R"("kind":")",
                        kind, "\",", kSandbox, R"("kernel_seq":"7",)", rest, "}");
}

// What the policy allows would not have been refused, whatever its mode.
TEST_F(DecodeTest, OnlyAViolationIsObserved) {
    auto record = MakeRecord<sk_exec>(SK_KIND_EXEC, 7);
    SetPath({"usr", "bin", "python3"}, &record.path);
    record.head.flags |= SK_RECORD_OBSERVE;
    EXPECT_FALSE(Decode(record).dry_run());
    record.head.code = SK_CODE_EXEC_DENIED;
    EXPECT_TRUE(Decode(record).dry_run());
}

TEST_F(DecodeTest, GoldenExec) {
    auto record = MakeRecord<sk_exec>(SK_KIND_EXEC, 7);
    SetPath({"usr", "bin", "python3"}, &record.path);
    SetArgv(absl::string_view("python3\0-c\0pass\0", 16), 3, &record);
    record.parent_tgid = 99;
    record.parent_start_boot_ns = 3;
    record.old_tid = 100;
    EXPECT_EQ(model::ToJsonLine(Decode(record)),
              Golden("exec",
                     R"("verdict":"allow","outcome":"done","code":"ok","section":"exec",)"
                     R"("coverage":"prevented",)"
                     R"("exec":{"path":"/usr/bin/python3","path_detail":{"inode":"42",)"
                     R"("device_major":8,"device_minor":1},"role":"program",)"
                     R"("argv":["python3","-c","pass"],"argc":3,"parent_pid":99,)"
                     R"("parent_start_boot_ns":"3"})"));
}

TEST_F(DecodeTest, GoldenExit) {
    auto record = MakeRecord<sk_exit>(SK_KIND_EXIT, 7);
    EXPECT_EQ(model::ToJsonLine(Decode(record)), Golden("exit", R"("exit":{"code":0})"));
    record.status = 9;
    EXPECT_EQ(model::ToJsonLine(Decode(record)), Golden("exit", R"("exit":{"signal":9})"));
    record.status = 0x8b;
    EXPECT_TRUE(Decode(record).exit().core_dumped());
    record.status = 3 << 8;
    EXPECT_EQ(Decode(record).exit().code(), 3u);
}

TEST_F(DecodeTest, GoldenFork) {
    auto record = MakeRecord<sk_fork>(SK_KIND_FORK, 7);
    record.child_tgid = 101;
    record.child_start_boot_ns = 6;
    record.clone_flags = 17;
    EXPECT_EQ(model::ToJsonLine(Decode(record)),
              Golden("fork", R"("fork":{"child_pid":101,"child_start_boot_ns":"6","clone_flags":"17"})"));
}

TEST_F(DecodeTest, GoldenFile) {
    auto record = MakeRecord<sk_file>(SK_KIND_FILE, 7);
    Refuse(&record.head, SK_CODE_READ_NOT_ALLOWED, SK_SECTION_FILES);
    SetPath({"etc", "shadow"}, &record.path);
    record.op = SK_FILE_OPEN_READ;
    record.open_flags = 0x8000;
    EXPECT_EQ(model::ToJsonLine(Decode(record)),
              Golden("file",
                     R"("verdict":"kill-sandbox","outcome":"prevented","lock":"bpf",)"
                     R"("code":"files.read","reason":"the policy does not allow reading /etc/shadow",)"
                     R"("section":"files","backend":"lsm","coverage":"killed after effect",)"
                     R"("file":{"op":"open-read","path":"/etc/shadow","path_detail":{"inode":"42",)"
                     R"("device_major":8,"device_minor":1},"open_flags":32768})"));
}

TEST_F(DecodeTest, GoldenNet) {
    auto record = MakeRecord<sk_net>(SK_KIND_NET, 7);
    Refuse(&record.head, SK_CODE_CONNECT_NOT_ALLOWED, SK_SECTION_NETWORK);
    record.op = SK_NET_CONNECT;
    record.family = AF_INET;
    record.type = SOCK_STREAM;
    record.protocol = 6;
    record.port = 443;
    record.address[0] = 10;
    record.address[3] = 1;
    EXPECT_EQ(model::ToJsonLine(Decode(record)),
              Golden("net",
                     R"("verdict":"kill-sandbox","outcome":"prevented","lock":"bpf",)"
                     R"("code":"network.connect",)"
                     R"("reason":"the policy does not allow a connection to 10.0.0.1:443",)"
                     R"("section":"network","backend":"lsm",)"
                     R"("net":{"op":"connect","family":"inet","type":"stream","protocol":"tcp",)"
                     R"("address":"10.0.0.1","port":443})"));
}

TEST_F(DecodeTest, AServerNameOfTlsIsToldWithItsAddress) {
    auto record = MakeRecord<sk_net>(SK_KIND_NET, 7);
    Refuse(&record.head, SK_CODE_TLS_NAME, SK_SECTION_NETWORK);
    record.op = SK_NET_SEND;
    record.family = AF_INET;
    record.type = SOCK_STREAM;
    record.protocol = 6;
    record.port = 443;
    record.address[0] = 10;
    const std::string name = "evil\x01.test";
    record.unix_len = static_cast<uint8_t>(name.size());
    std::memcpy(record.unix_path, name.data(), name.size());
    const v1::Event event = Decode(record);
    EXPECT_EQ(event.net().tls_name(), "evil\\x01.test");
    EXPECT_TRUE(event.net().escaped());
    EXPECT_EQ(event.net().unix_path(), "");
    EXPECT_EQ(event.reason(), "the policy lists no such server name of TLS: evil\\x01.test at 10.0.0.0:443");
}

TEST_F(DecodeTest, GoldenEscape) {
    auto record = MakeRecord<sk_escape>(SK_KIND_ESCAPE, 7);
    Refuse(&record.head, SK_CODE_ESCAPE, SK_SECTION_ESCAPE);
    record.op = SK_ESCAPE_PTRACE;
    record.argument = 16;
    record.target_tgid = 1;
    EXPECT_EQ(
        model::ToJsonLine(Decode(record)),
        Golden("escape",
               R"("verdict":"kill-sandbox","outcome":"prevented","lock":"bpf","code":"escape",)"
               R"x("reason":"needs a grant: ptrace (grants: [ptrace])","section":"escape","backend":"lsm",)x"
               R"("escape":{"op":"ptrace","argument":"16","target_pid":1})"));
}

TEST_F(DecodeTest, GoldenLifecycleAndRepeat) {
    auto record = MakeRecord<sk_lifecycle>(SK_KIND_LIFECYCLE, 7);
    record.op = SK_LIFECYCLE_EMPTY;
    EXPECT_EQ(model::ToJsonLine(Decode(record)),
              Golden("lifecycle", R"("verdict":"allow","outcome":"done","code":"ok",)"
                                  R"("section":"exec","lifecycle":{"op":"empty"})"));
    auto repeat = MakeRecord<sk_repeat>(SK_KIND_REPEAT, 7);
    Refuse(&repeat.head, SK_CODE_READ_NOT_ALLOWED, SK_SECTION_FILES);
    repeat.count = 1000;
    repeat.first_boot_ns = 4;
    EXPECT_THAT(model::ToJsonLine(Decode(repeat)),
                HasSubstr(R"("repeat":{"count":"1000","first_boot_ns":"4"})"));
}

TEST_F(DecodeTest, UnixAndIpv6) {
    auto record = MakeRecord<sk_net>(SK_KIND_NET, 1);
    record.op = SK_NET_CONNECT;
    record.family = AF_UNIX;
    memcpy(record.unix_path, "\0ab\n", 4);
    record.unix_len = 4;
    v1::Event event = Decode(record);
    EXPECT_EQ(event.net().unix_path(), "@ab\\x0a");
    EXPECT_TRUE(event.net().unix_abstract());
    EXPECT_TRUE(event.net().escaped());
    memcpy(record.unix_path, "/s\0x", 4);
    EXPECT_EQ(Decode(record).net().unix_path(), "/s");
    record.unix_len = SK_UNIX_PATH_BYTES + 1;
    ExpectRefused(record, Reason::STRING);
    record.family = AF_INET6;
    record.unix_len = 0;
    record.address[15] = 1;
    record.port = 1;
    EXPECT_EQ(Decode(record).net().address(), "::1");
}

TEST_F(DecodeTest, PathsThatAreOdd) {
    auto record = MakeRecord<sk_file>(SK_KIND_FILE, 1);
    record.op = SK_FILE_OPEN_READ;
    record.path.inode = 2;
    EXPECT_EQ(Decode(record).file().path(), "/");
    SetPath({"a\\b", "c\nd"}, &record.path);
    EXPECT_EQ(Decode(record).file().path(), "/a\\\\b/c\\x0ad");
    EXPECT_TRUE(Decode(record).file().path_detail().escaped());
    record.path.flags = SK_PATH_TRUNCATED;
    EXPECT_EQ(Decode(record).file().path(), ".../a\\\\b/c\\x0ad");
    record = MakeRecord<sk_file>(SK_KIND_FILE, 1);
    record.op = SK_FILE_OPEN_READ;
    SetPath({"memfd:x/y"}, &record.path);
    record.path.flags = SK_PATH_UNREACHABLE | SK_PATH_DELETED;
    EXPECT_EQ(Decode(record).file().path(), "memfd:x\\x2fy");
    record = MakeRecord<sk_file>(SK_KIND_FILE, 1);
    record.op = SK_FILE_OPEN_READ;
    SetPath({""}, &record.path);
    record.path.flags = SK_PATH_UNREACHABLE;
    EXPECT_EQ(Decode(record).file().path(), "pipe:[42]");
    record.path.flags = SK_PATH_ASWRITTEN;
    record.path.bytes_len = 3;
    memcpy(record.path.bytes, "../", 3);
    EXPECT_EQ(Decode(record).file().path(), "../");
    EXPECT_TRUE(Decode(record).file().path_detail().unverified());
}

TEST_F(DecodeTest, PathsThatLieAreRefused) {
    auto good = MakeRecord<sk_file>(SK_KIND_FILE, 1);
    good.op = SK_FILE_OPEN_READ;
    SetPath({"a", "b"}, &good.path);
    Decode(good);
    auto bad = good;
    bad.path.bytes_len = SK_PATH_BYTES + 1;
    ExpectRefused(bad, Reason::PATH);
    bad = good;
    bad.path.components = 3;
    ExpectRefused(bad, Reason::PATH);
    bad = good;
    bad.path.bytes[0] = 200;
    ExpectRefused(bad, Reason::PATH);
    bad = good;
    bad.path.bytes[0] = 0;
    ExpectRefused(bad, Reason::PATH);
}

TEST_F(DecodeTest, HeadsThatLieAreRefused) {
    const auto good = MakeRecord<sk_exit>(SK_KIND_EXIT, 1);
    auto bad = good;
    bad.head.abi = SK_RECORD_ABI + 1;
    ExpectRefused(bad, Reason::ABI);
    bad = good;
    bad.head.kind = 999;
    ExpectRefused(bad, Reason::KIND);
    bad = good;
    bad.head.kind = SK_KIND_EXEC;
    bad.head.bytes = sizeof(sk_exec);
    ExpectRefused(bad, Reason::SHORT);
    bad = good;
    bad.head.bytes = 8;
    ExpectRefused(bad, Reason::SIZE);
    bad = good;
    bad.head.verdict = 200;
    ExpectRefused(bad, Reason::VALUE);
    bad = good;
    bad.head.code = 6;
    ExpectRefused(bad, Reason::VALUE);
    auto step = MakeRecord<sk_lifecycle>(SK_KIND_LIFECYCLE, 1);
    step.op = 110;  // destroyed: the agent's word alone
    ExpectRefused(step, Reason::VALUE);
    v1::Event event;
    for (size_t size = 0; size < sizeof(good); ++size) {
        EXPECT_FALSE(decoder_.Decode(Bytes(good).first(size), &event).ok()) << size;
    }
}

TEST_F(DecodeTest, ArgvIsBoundedEscapedAndRedacted) {
    auto record = MakeRecord<sk_exec>(SK_KIND_EXEC, 1);
    SetPath({"x"}, &record.path);
    SetArgv(absl::string_view("x\0--password\0hunter2\0\0a\\b\0\x1b[2J\0cut", 34), 9, &record);
    record.argv_truncated = 1;
    const v1::Event event = Decode(record);
    EXPECT_THAT(event.exec().argv(), ElementsAre("x", "--password", "[redacted]", "", "a\\\\b",
                                                 "\\x1b[2J", "cut"));
    EXPECT_EQ(event.exec().argv_redacted(), 1u);
    EXPECT_TRUE(event.exec().argv_truncated());
    EXPECT_TRUE(event.exec().argv_escaped());
    record.argv_len = SK_ARGV_BYTES + 1;
    ExpectRefused(record, Reason::STRING);
}

TEST_F(DecodeTest, UnknownSandboxKeepsItsSlot) {
    auto record = MakeRecord<sk_exit>(SK_KIND_EXIT, 1);
    record.head.generation = 3;
    memset(record.head.comm, 'a', sizeof(record.head.comm));
    const v1::Event event = Decode(record);
    EXPECT_EQ(event.sandbox().slot(), 1u);
    EXPECT_EQ(event.sandbox().generation(), 3u);
    EXPECT_EQ(event.id(), "slot1g3.1");
    EXPECT_EQ(event.policy().hash(), "1122334455667788");
    EXPECT_EQ(event.process().comm(), std::string(16, 'a'));
    EXPECT_EQ(decoder_.count(Reason::UNKNOWN_SANDBOX), 1u);
}

TEST_F(DecodeTest, OtherLocksNameErrno) {
    auto record = MakeRecord<sk_file>(SK_KIND_FILE, 1);
    Refuse(&record.head, SK_CODE_OTHER_LOCK, SK_SECTION_FILES);
    record.head.lock = SK_LOCK_LANDLOCK;
    record.op = SK_FILE_OPEN_WRITE;
    record.error = 13;
    SetPath({"x"}, &record.path);
    EXPECT_EQ(Decode(record).reason(), "refused by another lock: /x (landlock, EACCES)");
}

TEST_F(DecodeTest, RandomBytesNeverMakeDirtyText) {
    std::mt19937 random(1);
    int decoded = 0;
    for (int i = 0; i < 20000; ++i) {
        auto record = MakeRecord<sk_exec>(SK_KIND_EXEC, 1);
        SetPath({"usr", "bin", "x"}, &record.path);
        SetArgv(absl::string_view("x\0y", 3), 2, &record);
        auto* bytes = reinterpret_cast<uint8_t*>(&record);
        for (int hits = 1 + static_cast<int>(random() % 4); hits > 0; --hits) {
            bytes[random() % 200] = static_cast<uint8_t>(random());
        }
        v1::Event event;
        if (!decoder_.Decode(Bytes(record), &event).ok()) continue;
        ++decoded;
        ASSERT_TRUE(model::IsPrintable(model::ToJsonLine(event)));
        ASSERT_TRUE(model::IsPrintable(event.exec().path()));
        ASSERT_TRUE(model::IsPrintable(event.process().comm()));
    }
    EXPECT_GT(decoded, 1000);
}

TEST_F(DecodeTest, TheKernelsOwnRuleForSessionsIsNobodysLock) {
    auto record = MakeRecord<sk_escape>(SK_KIND_ESCAPE, 7);
    Refuse(&record.head, SK_CODE_OTHER_LOCK, SK_SECTION_ESCAPE);
    record.head.lock = SK_LOCK_SECCOMP;
    record.op = SK_ESCAPE_OTHER_CALL;
    for (const long call : {SYS_setsid, SYS_setpgid}) {
        record.argument = static_cast<uint64_t>(call);
        const v1::Event event = Decode(record);
        EXPECT_EQ(event.lock(), "");
        EXPECT_NE(event.reason().find("the kernel's own rule"), std::string::npos) << event.reason();
    }
    record.argument = SYS_reboot;
    EXPECT_EQ(Decode(record).lock(), "seccomp");
}

}  // namespace
}  // namespace stockade::decode
