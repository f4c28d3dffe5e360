// The list of benches, and what all of them are given.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/stats.h"
#include "userspace/base/status.h"
#include "userspace/kernel/sensor.h"

namespace stockade::bench {

struct Settings {
    kernel::Backend backend = kernel::Backend::kAuto;
    double seconds = 3;   // of measuring, for each operation of a bench
    int rounds = 11;      // baseline and measured side take turns so often
    int runs = 100;       // sandboxes started for each of the figures of run.* and kill.*
    std::string step;     // path of bench_step
    std::string bin_dir;  // of stockade and stockaded
    std::vector<std::string> names = {};  // what was asked for; all without one
};

struct Bench {
    const char* name;  // the figures that it gives begin with it
    const char* what;
    Status (*run)(const Settings&, std::vector<Figure>*);
};

Status RunOutside(const Settings& settings, std::vector<Figure>* figures);
Status RunInside(const Settings& settings, std::vector<Figure>* figures);
Status RunRing(const Settings& settings, std::vector<Figure>* figures);
Status RunEvents(const Settings& settings, std::vector<Figure>* figures);
Status RunDns(const Settings& settings, std::vector<Figure>* figures);
Status RunPrograms(const Settings& settings, std::vector<Figure>* figures);
Status RunStart(const Settings& settings, std::vector<Figure>* figures);
Status RunLifecycle(const Settings& settings, std::vector<Figure>* figures);
Status RunKill(const Settings& settings, std::vector<Figure>* figures);

}  // namespace stockade::bench
