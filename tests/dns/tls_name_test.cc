// `tls_name: strict` through `stockade run`: at an address that a name has opened, a server of TLS is spoken to by a
// listed name or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/dns/world.h"
#include "tests/tools/product.h"

namespace stockade::tests {
namespace {

constexpr int kTlsPort = 8443;

// Each case sends its bytes to the server, in so many writes, and says whether anything came back, be it the end: what is
// no TLS a server of TLS ends at once.
constexpr char kClient[] = R"(
import socket, ssl, sys
host, port = 'ok.egress.test', int(sys.argv[1])
def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: pass
    return out.read()
def extended(data, more):
    at = 44 + data[43]
    at += 2 + int.from_bytes(data[at:at+2], 'big')
    at += 1 + data[at]
    grown = lambda b: (int.from_bytes(b, 'big') + len(more)).to_bytes(len(b), 'big')
    return data[:3] + grown(data[3:5]) + data[5:6] + grown(data[6:9]) + data[9:at] + grown(data[at:at+2]) + data[at+2:] + more
def answer(s):
    try: s.recv(1)
    except TimeoutError: return 'silent'
    except ConnectionResetError: pass
    return 'answered'
def say(what, *parts):
    try:
        with socket.socket() as s:
            s.settimeout(2)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.connect((host, port))
            for part in parts: s.sendall(part)
            print(what, answer(s), flush=True)
    except OSError as e: print(what, e.strerror, flush=True)
good = hello('ok.egress.test')
say('listed', good)
say('below', hello('another.egress.test'))
say('upper', hello('OK.Egress.TEST'))
say('after', good + b'\x16')
say('other', hello('other.test'))
say('suffix', hello('ok.egress.test.other.test'))
say('itself', hello('egress.test'))
say('absent', hello(None))
say('plain', b'GET / HTTP/1.0\r\n\r\n')
say('split', good[:20], good[20:])
say('cut', good[:-1])
say('encrypted', extended(good, b'\xfe\x0d\x00\x00'))
say('twice', extended(good, b'\0\0\0\x0f\0\x0d\0\0\x0aother.test'))
say('late', hello('other.test'), good)
# The first request asks for a cookie; with it, the next one's bytes are in its SYN.
def fast(what, data):
    try:
        for _ in range(2):
            with socket.socket() as s:
                s.sendto(data, socket.MSG_FASTOPEN, (host, port))
                s.settimeout(2)
                got, options = answer(s), s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
        print(what, got, 'in the SYN' if options & 32 else 'after it', flush=True)
    except OSError as e: print(what, e.strerror, flush=True)
fast('fast', good)
fast('fast_other', hello('other.test'))
with socket.socket() as s:
    s.settimeout(10)
    s.connect((host, port))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(s, server_hostname=host) as tls:
        tls.sendall(b'GET / HTTP/1.0\r\n\r\n')
        got = tls.recv(4096)
        print('whole', 'answered' if b'200' in got else got, flush=True)
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.connect((socket.gethostbyname(host), port))
    print('udp', 'connected', flush=True)
except OSError as e: print('udp', e.strerror, flush=True)
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    print('mptcp', 'made', flush=True)
except OSError as e: print('mptcp', e.strerror, flush=True)
)";

// Each connection has a thread: one whose bytes do not come holds up no other.
constexpr char kServer[] = R"(
import socket, socketserver, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            with context.wrap_socket(self.request, server_side=True) as tls:
                tls.recv(4096)
                tls.sendall(b'HTTP/1.0 200 OK\r\n\r\n')
                tls.recv(1)  # until it is read: an end now could overtake it
        except OSError: pass
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    def server_activate(self):
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        super().server_activate()
with Server(('0.0.0.0', int(sys.argv[3])), Handler) as server:
    print('ready', flush=True)
    server.serve_forever()
)";

class TlsName : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(world_.status().ok()) << world_.status();
        const std::string key = product_.Path("key.pem"), certificate = product_.Path("certificate.pem");
        const pid_t made = world_.outside().Start({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                                                   "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=egress.test", "-keyout", key,
                                                   "-out", certificate}, product_.Path("openssl.log"));
        ASSERT_GT(made, 0);
        ASSERT_TRUE(Until([&] { return absl::StrContains(ReadText(certificate), "END CERTIFICATE"); })) << product_.Get("openssl.log");
        const std::string fast = product_.Path("fast.txt");
        world_.outside().Start({"/bin/sh", "-c", "echo 3 >/proc/sys/net/ipv4/tcp_fastopen; cat /proc/sys/net/ipv4/tcp_fastopen"}, fast);
        ASSERT_TRUE(Until([&] { return ReadText(fast) == "3\n"; })) << ReadText(fast);
        world_.outside().Start({"/usr/bin/python3", "-c", kServer, certificate, key, absl::StrCat(kTlsPort)}, product_.Path("server.log"));
        ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("server.log"), "ready"); })) << product_.Get("server.log");
        world_.Answer("ok.egress.test", World::kOutside);
    }
    Ran Run(const std::string& name, const std::string& tls) {
        const std::string policy = product_.Put(name + ".yaml", absl::StrCat(
            "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name, "}\nspec:\n  violation: deny\n"
            "  exec: {allow: [/usr/**], libraries: [/usr/**]}\n  files: {read: [/**]}\n  network: {allow: [{name: \"*.egress.test\", ports: [",
            kTlsPort, "]", tls, "}]}\n  dns: {resolvers: [", World::kResolver, "]}\n"));
        return product_.Run(policy, {"python3", "-c", kClient, absl::StrCat(kTlsPort)});
    }
    static std::map<std::string, std::string> Results(const Ran& ran) {
        std::map<std::string, std::string> out;
        for (const absl::string_view line : absl::StrSplit(ran.out, '\n', absl::SkipEmpty())) {
            const std::pair<std::string, std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 1));
            out.insert(words);
        }
        return out;
    }
    World world_;
    Product product_;
};

const char* const kRefused[] = {"other", "suffix", "itself", "absent", "plain", "split", "cut", "encrypted", "twice", "late"};

TEST_F(TlsName, OnlyAListedNameIsSpokenTo) {
    const Ran ran = Run("strict", ", tls_name: strict");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    std::map<std::string, std::string> results = Results(ran);
    for (const char* allowed : {"listed", "below", "upper", "after", "whole"}) EXPECT_EQ(results[allowed], "answered") << allowed << ran.Text();
    for (const char* refused : kRefused) EXPECT_EQ(results[refused], "silent") << refused << ran.Text();
    EXPECT_EQ(results["fast"], "answered in the SYN");
    EXPECT_EQ(results["fast_other"].substr(0, 6), "silent") << results["fast_other"];
    EXPECT_EQ(results["udp"], "Operation not permitted");
    EXPECT_EQ(results["mptcp"], "Operation not permitted");
    bool named = false, unnamed = false;
    for (const Json& event : ran.events) {
        named |= At(event, "code") == "network.tls_name" && At(event, "net.tls_name") == "other.test" &&
                 At(event, "reason") == absl::StrCat("the policy lists no such server name of TLS: other.test at ", World::kOutside, ":", kTlsPort);
        unnamed |= At(event, "code") == "network.tls_hello" && At(event, "net.address") == World::kOutside;
    }
    EXPECT_TRUE(named && unnamed) << ran.Text();
}

// What is silent above is answered where the rule does not ask for it.
TEST_F(TlsName, WithoutItTheAddressIsOpen) {
    const Ran ran = Run("any", "");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    std::map<std::string, std::string> results = Results(ran);
    for (const char* open : kRefused) {
        if (std::string(open) == "cut") continue;
        EXPECT_EQ(results[open], "answered") << open << ran.Text();
    }
    EXPECT_EQ(results["cut"], "silent") << "the server waits for the last byte";
    EXPECT_EQ(results["fast"], "answered in the SYN");
    EXPECT_EQ(results["fast_other"], "answered in the SYN");
    EXPECT_EQ(results["udp"], "connected");
    EXPECT_EQ(results["mptcp"], "made");
}

}  // namespace
}  // namespace stockade::tests
