// A single Apache Kafka broker on loopback, in a folder of its own, whose process the test holds.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::testing_events {

class Broker {
  public:
    // Lays out folder, certificates and users, and starts it: PLAINTEXT on port(), mutual TLS on tls_port(),
    // SCRAM over TLS on sasl_port() (user alice, password alicepw).
    static StatusOr<std::unique_ptr<Broker>> Start();
    ~Broker();

    Status Restart();  // after Kill
    void Kill();       // SIGKILL, waited for
    pid_t pid() const { return pid_; }  // while it runs
    void Pause();      // SIGSTOP
    void Continue();   // SIGCONT

    // Through the admin interface, which waits until it is done.
    Status CreateTopic(const std::string& name, int partitions, const std::string& max_message_bytes = "");

    // What kcat, which is none of our code, reads from the topic's beginning to its present end.
    struct Message {
        std::string key;
        std::string headers;
        std::string value;
        int partition;
    };
    StatusOr<std::vector<Message>> Read(const std::string& topic) const;

    std::string hostport() const { return Address(port_); }
    std::string tls_hostport() const { return Address(tls_port_); }
    std::string sasl_hostport() const { return Address(sasl_port_); }
    const std::string& folder() const { return folder_; }  // ca.pem, client.pem, client.key

  private:
    Broker() = default;
    static std::string Address(int port) { return "127.0.0.1:" + std::to_string(port); }
    Status Prepare();
    Status Spawn();
    Status Run(const std::string& script) const;

    std::string folder_, jars_;
    int port_ = 0, tls_port_ = 0, sasl_port_ = 0, controller_port_ = 0;
    pid_t pid_ = -1;
};

}  // namespace stockade::testing_events
