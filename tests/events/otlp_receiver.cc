#include "tests/events/otlp_receiver.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::testing_events {
namespace {

// Of what one request may have; more is a bug of ours.
constexpr size_t kMaxRequest = 64 << 20;

// A request's head, with the empty line; "" when the peer is gone.
std::string ReadHead(int fd) {
    std::string head;
    char c;
    while (head.size() < 65536 && !absl::EndsWith(head, "\r\n\r\n")) {
        if (read(fd, &c, 1) != 1) return "";
        head.push_back(c);
    }
    return head;
}

size_t LengthOf(const std::string& head) {
    for (const absl::string_view line : absl::StrSplit(head, "\r\n")) {
        const std::pair<absl::string_view, absl::string_view> parts =
            absl::StrSplit(line, absl::MaxSplits(':', 1));
        size_t length = 0;
        if (absl::EqualsIgnoreCase(parts.first, "content-length") &&
            absl::SimpleAtoi(absl::StripAsciiWhitespace(parts.second), &length))
            return length;
    }
    return 0;
}

size_t RecordsIn(const otlp::Request& request) {
    size_t records = 0;
    for (const auto& resource : request.resource_logs())
        for (const auto& scope : resource.scope_logs())
            records += static_cast<size_t>(scope.log_records_size());
    return records;
}

}  // namespace

OtlpReceiver::OtlpReceiver(int port)
    : port_(port),
      wake_(eventfd(0, EFD_CLOEXEC)),
      answer_([](otlp::Request*, const std::string&) { return Reply{}; }) {
    ComeBack();
}

OtlpReceiver::~OtlpReceiver() { GoAway(); }

void OtlpReceiver::SetAnswer(Answer answer) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
}

std::string OtlpReceiver::url() const { return absl::StrCat("http://127.0.0.1:", port_, "/v1/logs"); }

std::vector<otlp::LogRecord> OtlpReceiver::records() const {
    std::lock_guard lock(mutex_);
    return records_;
}

std::vector<size_t> OtlpReceiver::requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
}

void OtlpReceiver::ComeBack() {
    listen_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int one = 1;
    (void)setsockopt(listen_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(listen_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listen_.get(), 16), 0);
    ASSERT_EQ(getsockname(listen_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
}

void OtlpReceiver::GoAway() {
    if (!thread_.joinable()) return;
    uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
    (void)!read(wake_.get(), &one, sizeof(one));
    listen_.Reset();
}

void OtlpReceiver::Serve() {
    std::list<Fd> connections;
    while (true) {
        std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {listen_.get(), POLLIN, 0}};
        for (const Fd& fd : connections) fds.push_back({fd.get(), POLLIN, 0});
        if (poll(fds.data(), fds.size(), -1) < 0) continue;
        if (fds[0].revents != 0) return;
        size_t i = 2;
        for (auto at = connections.begin(); at != connections.end(); ++i) {
            const bool open = fds[i].revents == 0 || ServeOne(at->get());
            at = open ? std::next(at) : connections.erase(at);
        }
        if (fds[1].revents != 0)
            connections.emplace_back(accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
}

bool OtlpReceiver::ServeOne(int fd) {
    const std::string head = ReadHead(fd);
    const size_t length = LengthOf(head);
    if (head.empty() || length > kMaxRequest) return false;
    std::string body(length, '\0');
    for (size_t got = 0; got < length;) {
        const ssize_t n = read(fd, body.data() + got, length - got);
        if (n <= 0) return false;
        got += static_cast<size_t>(n);
    }
    otlp::Request request;
    EXPECT_TRUE(request.ParseFromString(body));
    EXPECT_TRUE(absl::StartsWith(head, "POST /v1/logs HTTP/1.1\r\n")) << head;
    EXPECT_TRUE(absl::StrContains(absl::AsciiStrToLower(head), "content-type: application/x-protobuf\r\n"))
        << head;
    Answer answer;
    {
        std::lock_guard lock(mutex_);
        requests_.push_back(RecordsIn(request));
        answer = answer_;
    }
    const Reply reply = answer(&request, head);
    if (reply.takes && reply.status / 100 == 2) {
        std::lock_guard lock(mutex_);
        for (const auto& resource : request.resource_logs())
            for (const auto& scope : resource.scope_logs())
                for (const auto& record : scope.log_records()) records_.push_back(record);
    }
    if (reply.silent) return false;
    if (reply.hangs) return true;
    const std::string text =
        absl::StrCat("HTTP/1.1 ", reply.status, " Word\r\nContent-Length: ", reply.body.size(), "\r\n",
                     reply.headers, "\r\n", reply.body);
    return WriteAll(fd, text).ok();
}

}  // namespace stockade::testing_events
