// A process that repeats a system call on order and says what one of them cost.
//
//   SK_ASSIGN_OR_RETURN(auto worker, Worker::Start({.cgroup = stage.base_cgroup(), ...}));
//   SK_ASSIGN_OR_RETURN(std::vector<double> ns, worker->Measure(Op::kOpenClose, 100'000'000));
//
// Times are those on the CPU, of the worker and of what it executed: on a machine that does other things as well the wall's time
// says mostly how many those are. A batch gives one sample.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/policy/compile.h"

namespace stockade::bench {

enum class Op : uint32_t {
    kGetppid,
    kOpenClose,  // of Stage::file()
    kExec,       // vfork, execve of a static program that does nothing, its exit, wait4
    kConnect,    // TCP socket, connect to a port of 127.0.0.1 where nobody listens, close
    kConnectUdp,  // connect of one UDP socket to the same port, again and again: the verdict with hardly anything beside it
    kUdpSend,  // sendto a full socket on 127.0.0.1: 64 bytes
    // sendto port 53 of kResolver, a query for
    kDnsUsual,    // one of 64 names, in turn
    kDnsNew,      // a name that was not asked before
    kDnsDeepest,  // such a name, of as many labels as a zone's budget lets pass
    kDnsLongest,  // such a name, of as many bytes and labels as there can be
};
const char* NameOf(Op op);
inline constexpr char kResolver[] = "127.53.0.1";  // for the kDns operations: see HoldResolver
// Nobody reads there, and it is full: each query costs the same. As long as the socket lives.
StatusOr<Fd> HoldResolver();

// The file lists of a policy as the launcher makes a Landlock domain of them under `signal`: read and write.
Status EnterLandlock(const std::vector<policy::LandlockRule>& rules);

class Worker {
  public:
    struct Options {
        std::string cgroup = {};
        std::string file = {};
        std::string step = {};
        uint16_t closed_port = 0;
        uint16_t udp_port = 0;
        bool preferred = true;  // before what else runs on the machine; false for those that only make events
        const std::vector<policy::LandlockRule>* landlock = nullptr;  // not owned; null = no domain
    };
    static StatusOr<std::unique_ptr<Worker>> Start(const Options& options);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // One sample for each batch that ends within `wall_ns`; at least one batch.
    StatusOr<std::vector<double>> Measure(Op op, uint64_t wall_ns);
    // Repeats without an answer until the time is over; Finish waits for how often it was.
    // `per_second`: not more often; 0 = as often as it can.
    Status Begin(Op op, uint64_t wall_ns, uint64_t per_second = 0);
    StatusOr<uint64_t> Finish();

    int pidfd() const { return pidfd_.get(); }
    pid_t pid() const { return pid_; }

  private:
    Worker() = default;
    pid_t pid_ = -1;
    Fd pidfd_, orders_, answers_;
};

// Ports of the loopback for kConnect and kUdpSend, held as long as this lives.
class Ports {
  public:
    static StatusOr<Ports> Take();
    uint16_t closed_port() const { return closed_port_; }
    uint16_t udp_port() const { return udp_port_; }

  private:
    Fd closed_;  // bound, not listening: connections are refused, and nobody else gets the port
    Fd udp_;     // nobody reads
    uint16_t closed_port_ = 0, udp_port_ = 0;
};

}  // namespace stockade::bench
