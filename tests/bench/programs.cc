// programs.*: how many instructions the verifier walked, and how many each program has.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/machine.h"
#include "tests/bench/stage.h"
#include "userspace/base/errno.h"

namespace stockade::bench {

Status RunPrograms(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto stage, Stage::Create(settings.step));
    SK_ASSIGN_OR_RETURN(const auto machine, Machine::Create(settings.backend, stage->launched_cgroup()));
    bpf_program* program;
    bpf_object__for_each_program(program, machine->programs().object()) {
        const int fd = bpf_program__fd(program);
        if (fd < 0) continue;
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        if (bpf_obj_get_info_by_fd(fd, &info, &size) != 0) return ErrnoStatus(errno, "ask about a program");
        if (info.verified_insns == 0)
            return absl::InternalError(absl::StrCat(bpf_program__name(program), " was verified in no step"));
        Figure figure;
        figure.name = absl::StrCat("programs.", bpf_program__name(program));
        figure.unit = "insns";
        figure.with = QuantilesOf({static_cast<double>(info.verified_insns)});
        figure.note = absl::StrCat(info.xlated_prog_len / 8, " instructions, ", info.jited_prog_len,
                                   " bytes of machine code");
        figures->push_back(std::move(figure));
    }
    return absl::OkStatus();
}

}  // namespace stockade::bench
