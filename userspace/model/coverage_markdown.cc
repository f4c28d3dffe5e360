// docs/coverage.md, printed from the table.
#include <map>

#include "absl/strings/str_cat.h"
#include "userspace/model/coverage.h"

namespace stockade::model {
namespace {

constexpr absl::string_view kHead =
    R"(<!-- Printed from userspace/model/coverage.def; a test compares. To write it anew:
     STOCKADE_UPDATE_GOLDEN=1 build/dev/bin/tests/model_coverage_test -->
# Coverage

What becomes of an operation that a policy refuses, by backend. `stockade doctor` says which
backend this host has, and shows this table for it.

* **prevented**: refused before its effect. The lock that refuses stands beside it where it is
  not `bpf`.
* **killed after effect**: the effect happens, then the caller dies before its next instruction
  in user space. What another thread or process can do meanwhile is said in the reasons.
* **seen**: reported, not stopped.
* **unseen**: not even reported.

`+launcher` is a sandbox that `stockade run` built; without it, a cgroup that somebody else
built, such as a pod's. Landlock's cells hold outside the trees that the policy's allow rules
reach; for a deny, or a pattern finer than a directory, inside such a tree the cell of the plain
`signal` column holds. So it does for `open_directory` where the policy lists `/`, as the built-in
base does: who may list one directory may, to Landlock, list all below it. A script under `signal+launcher` is prevented by Landlock too where the
exec section's violation is `deny`.
)";

constexpr absl::string_view kAttacks = R"(
## Two attacks on `signal`

The backend kills whoever opened what it may not. Two rows are the measure of what that leaves:

* `open_thread_reads`: a second thread spins on `pread` of the descriptor number that the open
  is going to return. It had the bytes in 2,958 of 3,000 kills.
* `open_shared_table`: a process that shares the descriptor table keeps the descriptor when the
  opener dies. The kill therefore takes every labelled task with the same table.

Where bytes must not be read at all, use `lsm`, or let the launcher keep the file out of reach
(no allow rule that reaches its directory).
)";

std::string CellText(const Coverage& coverage) {
    std::string text(Text(coverage.cell));
    if (coverage.cell == Cell::kPrevented && coverage.lock != "bpf") {
        absl::StrAppend(&text, " (", coverage.lock, ")");
    }
    return text;
}

// Numbers the reasons in order of first use, so that the table stays narrow.
class Notes {
  public:
    std::string Mark(absl::string_view reason) {
        if (reason.empty()) return "";
        auto [it, added] = numbers_.emplace(reason, numbers_.size() + 1);
        if (added) absl::StrAppend(&text_, it->second, ". ", reason, "\n");
        return absl::StrCat(" [", it->second, "]");
    }
    const std::string& text() const { return text_; }

  private:
    std::map<absl::string_view, size_t> numbers_;
    std::string text_;
};

}  // namespace

std::string CoverageMarkdown() {
    std::string table;
    Notes notes;
    absl::string_view section;
    for (const OperationInfo& info : Operations()) {
        if (info.section != section) {
            section = info.section;
            absl::StrAppend(&table, "\n## ", section, "\n\n| operation | what |");
            for (size_t c = 0; c < kColumnCount; ++c) {
                absl::StrAppend(&table, " ", Text(static_cast<Column>(c)), " |");
            }
            absl::StrAppend(&table, "\n|---|---|---|---|---|---|\n");
        }
        absl::StrAppend(&table, "| `", info.id, "` | ", info.text, " |");
        for (size_t c = 0; c < kColumnCount; ++c) {
            Coverage coverage = CoverageOf(*FindOperation(info.id), static_cast<Column>(c));
            absl::StrAppend(&table, " ", CellText(coverage), notes.Mark(coverage.reason), " |");
        }
        absl::StrAppend(&table, "\n");
    }
    std::string without =
        "\n## On kernels without a feature\n\nDoctor names what is missing. Without landlock or "
        "seccomp their cells are those of the column without `+launcher`. Else these change:\n\n"
        "| without | operation | column | cell |\n|---|---|---|---|\n";
    for (size_t f = 0; f < kFeatureCount; ++f) {
        Feature feature = static_cast<Feature>(f);
        if (feature == Feature::LANDLOCK || feature == Feature::SECCOMP) continue;
        FeatureSet missing;
        missing.set(f);
        for (const OperationInfo& info : Operations()) {
            for (size_t c = 0; c < kColumnCount; ++c) {
                Column column = static_cast<Column>(c);
                Operation operation = *FindOperation(info.id);
                Coverage with = CoverageOf(operation, column);
                Coverage now = CoverageOf(operation, column, missing);
                if (with.cell == now.cell) continue;
                absl::StrAppend(&without, "| `", InfoOf(feature).name, "` | `",
                                info.id, "` | ", Text(column), " | ", CellText(now),
                                notes.Mark(now.reason), " |\n");
            }
        }
    }
    return absl::StrCat(kHead, table, without, kAttacks, "\n## Reasons\n\n", notes.text());
}

}  // namespace stockade::model
