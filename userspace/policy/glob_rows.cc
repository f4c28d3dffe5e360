#include "userspace/policy/glob_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stockade::policy {
namespace {

// A position within a glob of the set: index in the set << 16 | element.
using Positions = std::vector<uint32_t>;

// Steps that the construction of one policy's rows may take: a second of work. Row count alone
// does not bound it, for one row can hold every position of every glob.
constexpr size_t kMaxPositions = 1 << 13;

}  // namespace

struct GlobRows::Builder {
    GlobRows& owner;
    const std::vector<uint32_t>& numbers;
    Set set;
    std::map<Positions, uint16_t> rows;
    std::vector<std::pair<Positions, std::string>> queue;  // with the shortest name leading there
    std::map<std::vector<uint32_t>, uint16_t> class_index;

    const Glob& glob(uint32_t position) const { return owner.glob(numbers[position >> 16]); }

    void Close(Positions& positions) const {
        for (size_t i = 0; i < positions.size(); ++i) {
            const Glob& g = glob(positions[i]);
            const size_t element = positions[i] & 0xffff;
            if (element < g.size() && g[element] == kGlobAnyBytes) positions.push_back(positions[i] + 1);
        }
        std::sort(positions.begin(), positions.end());
        positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    }

    Positions Step(const Positions& from, size_t byte_class) const {
        Positions to;
        for (uint32_t position : from) {
            const Glob& g = glob(position);
            const size_t element = position & 0xffff;
            if (element == g.size()) continue;
            if (g[element] == kGlobAnyBytes) {
                to.push_back(position);
            } else if (g[element] == kGlobAnyByte || owner.classes_[g[element]] == byte_class) {
                to.push_back(position + 1);
            }
        }
        Close(to);
        return to;
    }

    // Row of a set of positions; 0, where nothing can match any more, if the set is empty.
    StatusOr<uint16_t> RowOf(Positions positions, std::string name) {
        if (positions.empty()) return uint16_t{0};
        auto found = rows.find(positions);
        if (found != rows.end()) return found->second;
        if (owner.rows_.size() >= SK_GLOB_MAX_ROWS || positions.size() > kMaxPositions) {
            return absl::ResourceExhaustedError(
                "the globs within components are too many or too entangled: use fewer '*' in one name");
        }
        const auto row = static_cast<uint16_t>(owner.rows_.size());
        owner.rows_.emplace_back();
        owner.rows_.back().fill(0);
        rows.emplace(positions, row);
        queue.emplace_back(std::move(positions), std::move(name));
        return row;
    }

    // Class of the globs that end at these positions.
    uint16_t ClassOf(const Positions& positions, const std::string& name) {
        std::vector<uint32_t> matched;
        for (uint32_t position : positions) {
            if ((position & 0xffff) == glob(position).size()) matched.push_back(numbers[position >> 16]);
        }
        // No directory entry has an empty name, but globs of stars alone would match it.
        if (matched.empty()) return 0;
        auto [it, added] = class_index.emplace(matched, static_cast<uint16_t>(set.matches.size()));
        if (added) {
            set.matches.push_back(matched);
            set.samples.push_back(name);
        }
        return it->second;
    }

    Status Build() {
        set.matches.emplace_back();
        set.samples.emplace_back();
        Positions start;
        for (size_t i = 0; i < numbers.size(); ++i) start.push_back(static_cast<uint32_t>(i << 16));
        Close(start);
        SK_ASSIGN_OR_RETURN(set.start_row, RowOf(start, ""));
        for (size_t head = 0; head < queue.size(); ++head) {
            const auto [positions, name] = queue[head];
            const uint16_t row = rows.at(positions);
            for (size_t c = 0; c < owner.representative_.size(); ++c) {
                std::string longer = name + static_cast<char>(owner.representative_[c]);
                SK_ASSIGN_OR_RETURN(uint16_t to, RowOf(Step(positions, c), std::move(longer)));
                owner.rows_[row][c] = to;
            }
            owner.rows_[row][SK_GLOB_END] = ClassOf(positions, name);
        }
        return absl::OkStatus();
    }
};

uint32_t GlobRows::Intern(const Glob& glob) {
    auto [it, added] = numbers_.emplace(glob, static_cast<uint32_t>(globs_.size()));
    if (added) globs_.push_back(&it->first);
    return it->second;
}

Status GlobRows::Freeze() {
    std::array<bool, 256> named{};
    for (const Glob* glob : globs_) {
        for (uint16_t element : *glob) {
            if (element < 256) named[element] = true;
        }
    }
    classes_.fill(0);
    // Class 0 is every byte that no glob names; its representative must be such a byte.
    representative_.assign(1, 0);
    for (int byte = 255; byte >= 1; --byte) {
        if (!named[byte] && byte != '/') representative_[0] = static_cast<uint8_t>(byte);
    }
    if (!named['x']) representative_[0] = 'x';
    for (int byte = 1; byte < 256; ++byte) {
        if (!named[byte]) continue;
        if (representative_.size() >= SK_GLOB_END) {
            return absl::ResourceExhaustedError(
                absl::StrCat("the globs of a policy may name at most ", SK_GLOB_END - 1, " different bytes"));
        }
        classes_[byte] = static_cast<uint8_t>(representative_.size());
        representative_.push_back(static_cast<uint8_t>(byte));
    }
    return absl::OkStatus();
}

StatusOr<uint32_t> GlobRows::AddSet(const std::vector<uint32_t>& numbers) {
    auto found = set_index_.find(numbers);
    if (found != set_index_.end()) return found->second;
    Builder builder{*this, numbers, {}, {}, {}, {}};
    SK_RETURN_IF_ERROR(builder.Build());
    const auto index = static_cast<uint32_t>(sets_.size());
    sets_.push_back(std::move(builder.set));
    set_index_.emplace(numbers, index);
    return index;
}

}  // namespace stockade::policy
