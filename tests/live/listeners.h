// For tests: who hears what a sandbox sends. Each port has a TCP and a UDP listener on 127.0.0.1 and on ::1.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/fd.h"

namespace stockade::live {

class Listeners {
  public:
    static StatusOr<Listeners> Create();
    int allowed() const { return allowed_.port; }
    int port() const { return refused_.port; }
    // A connection or a datagram has arrived at the port that no policy lists. Takes it away.
    bool Heard() { return Heard(refused_); }
    bool HeardAllowed() { return Heard(allowed_); }

  private:
    struct Port {
        int port = 0;
        std::vector<Fd> streams, datagrams;
    };
    static StatusOr<Port> Open();
    static bool Heard(Port& port);

    Port allowed_, refused_;
};

}  // namespace stockade::live
