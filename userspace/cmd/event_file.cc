#include "userspace/cmd/event_file.h"

#include <cerrno>
#include <fstream>
#include <iostream>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/model/json.h"

namespace stockade::cmd {

Status ReadEvents(const std::string& path, const std::function<void(v1::Event&&)>& each, const std::function<void(const std::string&)>& bad) {
    std::ifstream file;
    if (path != "-") file.open(path);
    if (path != "-" && !file) return ErrnoStatus(errno, absl::StrCat("read ", path));
    std::istream& in = path == "-" ? std::cin : file;
    std::vector<char> buffer(kMaxEventLine);
    for (uint64_t number = 1; in.getline(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0; ++number) {
        const std::string where = absl::StrCat(path, ":", number, ": ");
        if (in.fail()) {
            in.clear();
            in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
            bad(absl::StrCat(where, "longer than any event is (", kMaxEventLine, " bytes)"));
            continue;
        }
        // The newline counts too, where there is one. A line may hold zero bytes.
        const auto got = static_cast<size_t>(in.gcount());
        const absl::string_view line(buffer.data(), in.eof() ? got : got - 1);
        if (absl::StripAsciiWhitespace(line).empty()) continue;
        StatusOr<v1::Event> event = model::FromJsonLine(line);
        if (event.ok()) each(*std::move(event));
        else bad(absl::StrCat(where, event.status().message()));
    }
    return in.bad() ? ErrnoStatus(errno, absl::StrCat("read ", path)) : absl::OkStatus();
}

}  // namespace stockade::cmd
