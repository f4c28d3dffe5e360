#include "tests/events/broker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/fd.h"

namespace stockade::testing_events {
namespace {

// A restart after SIGKILL waits for the old session to expire; a loaded machine takes its time as well.
constexpr auto kReady = std::chrono::seconds(90);
constexpr int kAdminMs = 60'000;
constexpr char kJava[] =
    "java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info";

constexpr char kProperties[] = R"(process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:@CPORT@
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:@PORT@,CONTROLLER://127.0.0.1:@CPORT@,SSL://127.0.0.1:@TPORT@,SASLSSL://127.0.0.1:@SPORT@
advertised.listeners=PLAINTEXT://127.0.0.1:@PORT@,SSL://127.0.0.1:@TPORT@,SASLSSL://127.0.0.1:@SPORT@
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASLSSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
log.dirs=@DIR@/data
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=4194304
ssl.keystore.type=PEM
ssl.keystore.location=@DIR@/server-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=@DIR@/ca.pem
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.saslssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.saslssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
)";

constexpr char kCertificates[] = R"(
san='subjectAltName=DNS:localhost,IP:127.0.0.1'
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
for name in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name -keyout $name.key -out $name.csr
    echo "$san" >$name.ext
    openssl x509 -req -days 2 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile $name.ext -out $name.pem
done
cat server.key server.pem >server-keystore.pem
)";

// Kept while the others are chosen, so that no two are the same. Fixed from then on: a kill must not move them.
int FreePort(std::vector<Fd>* held) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        return 0;
    }
    held->push_back(std::move(socket));
    return ntohs(address.sin_port);
}

StatusOr<std::string> Output(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "re");
    if (!pipe) return absl::InternalError(command);
    StatusOr<std::string> out = ReadAll(fileno(pipe), size_t{1} << 30);
    const int status = pclose(pipe);
    if (status != 0)
        return absl::InternalError(absl::StrCat(command, ": status ", status, out.ok() ? ": " + *out : ""));
    return out;
}

}  // namespace

StatusOr<std::unique_ptr<Broker>> Broker::Start() {
    std::unique_ptr<Broker> broker(new Broker);
    SK_RETURN_IF_ERROR(broker->Prepare());
    SK_RETURN_IF_ERROR(broker->Spawn());
    return broker;
}

Broker::~Broker() {
    Kill();
    std::error_code ignored;  // a folder in /tmp
    std::filesystem::remove_all(folder_, ignored);
}

Status Broker::Run(const std::string& script) const {
    std::ofstream(folder_ + "/script.sh") << "set -eu\ncd " << folder_ << "\n" << script;
    return Output(absl::StrCat("bash ", folder_, "/script.sh 2>&1")).status();
}

Status Broker::Prepare() {
    SK_ASSIGN_OR_RETURN(const std::string jars,
                        Output(absl::StrCat(getenv("STOCKADE_SOURCE_DIR"), "/tests/events/kafka_jars")));
    jars_ = std::string(absl::StripSuffix(jars, "\n"));
    char name[] = "/tmp/stockade_broker_XXXXXX";
    if (!mkdtemp(name)) return absl::InternalError("no folder for the broker");
    folder_ = name;
    std::vector<Fd> held;
    for (int* port : {&port_, &tls_port_, &sasl_port_, &controller_port_}) *port = FreePort(&held);
    std::ofstream(folder_ + "/server.properties")
        << absl::StrReplaceAll(kProperties, {{"@DIR@", folder_},
                                             {"@PORT@", absl::StrCat(port_)},
                                             {"@TPORT@", absl::StrCat(tls_port_)},
                                             {"@SPORT@", absl::StrCat(sasl_port_)},
                                             {"@CPORT@", absl::StrCat(controller_port_)}});
    SK_RETURN_IF_ERROR(Run(kCertificates));
    return Run(
        absl::StrCat(kJava, " -Xmx64m -cp '", jars_,
                     "/*' kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties",
                     " --add-scram 'SCRAM-SHA-256=[name=alice,password=alicepw]' --add-scram "
                     "'SCRAM-SHA-512=[name=alice,password=alicepw]'"));
}

Status Broker::Spawn() {
    const std::string log = folder_ + "/broker.log";
    const std::string command = absl::StrCat("exec ", kJava, " -Xmx256m -cp '", jars_, "/*' kafka.Kafka ",
                                             folder_, "/server.properties >", log, " 2>&1");
    std::filesystem::remove(log);
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves no broker behind
        execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
        _exit(127);
    }
    const auto deadline = std::chrono::steady_clock::now() + kReady;
    while (std::chrono::steady_clock::now() < deadline) {
        const auto text = ReadFile(log, 16 << 20);
        if (text.ok() && absl::StrContains(*text, "Kafka Server started")) return absl::OkStatus();
        if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
            pid_ = -1;
            return absl::InternalError(absl::StrCat("the broker ended: ", text.ok() ? *text : ""));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // between two looks
    }
    return absl::DeadlineExceededError("the broker is not ready");
}

Status Broker::Restart() { return Spawn(); }

void Broker::Kill() {
    if (pid_ <= 0) return;
    (void)kill(pid_, SIGKILL);  // ours, and not waited for yet
    (void)waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

void Broker::Pause() { (void)kill(pid_, SIGSTOP); }
void Broker::Continue() { (void)kill(pid_, SIGCONT); }

Status Broker::CreateTopic(const std::string& name, int partitions, const std::string& max_message_bytes) {
    char error[512];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", hostport().c_str(), error, sizeof(error));
    rd_kafka_t* client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
    if (!client) return absl::InternalError(error);
    rd_kafka_NewTopic_t* topic = rd_kafka_NewTopic_new(name.c_str(), partitions, 1, error, sizeof(error));
    if (!max_message_bytes.empty())
        (void)rd_kafka_NewTopic_set_config(topic, "max.message.bytes", max_message_bytes.c_str());
    rd_kafka_queue_t* queue = rd_kafka_queue_new(client);
    rd_kafka_CreateTopics(client, &topic, 1, nullptr, queue);
    rd_kafka_event_t* event = rd_kafka_queue_poll(queue, kAdminMs);
    Status status = absl::DeadlineExceededError("create topic " + name);
    if (event) {
        size_t count = 0;
        const auto* result = rd_kafka_event_CreateTopics_result(event);
        const auto** topics = rd_kafka_CreateTopics_result_topics(result, &count);
        const auto code = rd_kafka_event_error(event) ? rd_kafka_event_error(event)
                          : count > 0                 ? rd_kafka_topic_result_error(topics[0])
                                                      : RD_KAFKA_RESP_ERR__FAIL;
        status = code == RD_KAFKA_RESP_ERR_NO_ERROR
                     ? absl::OkStatus()
                     : absl::InternalError(absl::StrCat(name, ": ", rd_kafka_err2str(code)));
        rd_kafka_event_destroy(event);
    }
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return status;
}

StatusOr<std::vector<Broker::Message>> Broker::Read(const std::string& topic) const {
    SK_ASSIGN_OR_RETURN(const std::string text,
                        Output(absl::StrCat("kcat -C -b ", hostport(), " -t ", topic,
                                            " -o beginning -e -q -f '%p\\t%k\\t%h\\t%s\\n'")));
    std::vector<Message> messages;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('\t', 3));
        int partition = 0;
        if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &partition))
            return absl::InternalError(absl::StrCat("kcat: ", line));
        messages.push_back({parts[1], parts[2], parts[3], partition});
    }
    return messages;
}

}  // namespace stockade::testing_events
