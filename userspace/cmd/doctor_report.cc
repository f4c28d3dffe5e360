#include "userspace/cmd/doctor_report.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/model/coverage.h"

namespace stockade {
namespace {

using kernel::Backend;
using kernel::Feature;
using model::Cell;
using model::Column;
using model::Coverage;
using model::Need;

constexpr absl::string_view kGreen = "\033[32m";
constexpr absl::string_view kYellow = "\033[33m";
constexpr absl::string_view kRed = "\033[31m";
constexpr absl::string_view kPlain = "\033[0m";

std::string Paint(bool colours, absl::string_view colour, std::string text) {
    return colours ? absl::StrCat(colour, text, kPlain) : text;
}

absl::string_view ColourOf(Cell cell) {
    if (cell == Cell::kPrevented) return kGreen;
    return cell == Cell::kKilledAfterEffect ? kYellow : kRed;
}

absl::string_view NeedText(Need need) {
    switch (need) {
        case Need::kBoth: return "always";
        case Need::kLsm: return "lsm";
        case Need::kSignal: return "signal";
        case Need::kPins: return "pins";
        case Need::kLaunch: return "run";
        case Need::kExtra: return "optional";
    }
    return "?";
}

absl::string_view BackendName(Backend backend) {
    return backend == Backend::kLsm ? "lsm" : "signal";
}

// The backend's two columns; without a backend those of the one that comes nearest.
std::pair<Column, Column> ColumnsOf(const Diagnosis& diagnosis) {
    if (diagnosis.backend.ok() && *diagnosis.backend == Backend::kLsm) {
        return {Column::kLsm, Column::kLsmLaunched};
    }
    return {Column::kSignal, Column::kSignalLaunched};
}

std::string CellText(const Coverage& coverage) {
    std::string text(Text(coverage.cell));
    if (coverage.cell == Cell::kPrevented && coverage.lock != "bpf") {
        absl::StrAppend(&text, " (", coverage.lock, ")");
    }
    return text;
}

void AppendFeatures(const Diagnosis& diagnosis, bool colours, std::string* out) {
    absl::StrAppendFormat(out, "\n%-28s %-8s %-9s %s\n", "FEATURE", "STATE", "NEEDED", "FOR, OR WHY NOT");
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        const auto& info = InfoOf(feature);
        const auto& state = diagnosis.report.at(feature);
        bool required = std::count(diagnosis.required.begin(), diagnosis.required.end(), feature) > 0;
        absl::string_view colour = state.present ? kGreen : required ? kRed : kYellow;
        std::string why(info.what);
        if (!state.reason.empty()) {
            why = state.present ? absl::StrCat(why, " (", state.reason, ")") : state.reason;
        }
        absl::StrAppendFormat(out, "%-28s %s %-9s %s\n", info.name,
                              Paint(colours, colour, absl::StrFormat("%-8s", state.present ? "yes" : "no")),
                              NeedText(info.need), why);
    }
}

void AppendCoverage(const Diagnosis& diagnosis, bool colours, std::string* out) {
    auto [plain, launched] = ColumnsOf(diagnosis);
    const auto missing = diagnosis.report.missing();
    absl::string_view section;
    for (size_t i = 0; i < model::Operations().size(); ++i) {
        const auto& info = model::Operations()[i];
        auto operation = static_cast<model::Operation>(i);
        if (info.section != section) {
            section = info.section;
            absl::StrAppendFormat(out, "\n%-20s %-22s %-22s %s\n", absl::AsciiStrToUpper(section),
                                  absl::AsciiStrToUpper(Text(plain)),
                                  absl::AsciiStrToUpper(Text(launched)), "WHAT, AND WHY NOT PREVENTED");
        }
        Coverage a = CoverageOf(operation, plain, missing);
        Coverage b = CoverageOf(operation, launched, missing);
        absl::StrAppendFormat(
            out, "%-20s %s %s %s%s%s\n", info.id,
            Paint(colours, ColourOf(a.cell), absl::StrFormat("%-22s", CellText(a))),
            Paint(colours, ColourOf(b.cell), absl::StrFormat("%-22s", CellText(b))), info.text,
            a.reason.empty() ? "" : ": ", a.reason);
    }
}

void AppendCures(const Diagnosis& diagnosis, std::string* out) {
    std::string cures;
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        std::string cure = Cure(diagnosis.report, feature);
        if (!cure.empty()) absl::StrAppend(&cures, "  ", InfoOf(feature).name, ": ", cure, "\n");
    }
    if (!cures.empty()) absl::StrAppend(out, "\nTo get more from this host\n", cures);
}

// JSON: every byte outside printable ASCII as \u00XX, so that the document is valid whatever a
// mount point is called.
std::string Quote(absl::string_view text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            absl::StrAppend(&out, "\\", std::string(1, static_cast<char>(c)));
        } else if (c < 0x20 || c >= 0x7f) {
            absl::StrAppendFormat(&out, "\\u%04x", c);
        } else {
            out.push_back(static_cast<char>(c));
        }
    }
    out.push_back('"');
    return out;
}

std::string QuoteAll(const std::vector<std::string>& items) {
    return absl::StrCat("[", absl::StrJoin(items, ",", [](std::string* out, const std::string& item) {
                            out->append(Quote(item));
                        }), "]");
}

std::string JsonFeatures(const Diagnosis& diagnosis) {
    std::vector<std::string> rows;
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        const auto& info = InfoOf(feature);
        const auto& state = diagnosis.report.at(feature);
        rows.push_back(absl::StrCat("{\"name\":", Quote(info.name), ",\"present\":",
                                    state.present ? "true" : "false", ",\"needed\":",
                                    Quote(NeedText(info.need)), ",\"what\":", Quote(info.what),
                                    ",\"reason\":", Quote(state.reason), ",\"cure\":",
                                    Quote(Cure(diagnosis.report, feature)), "}"));
    }
    return absl::StrJoin(rows, ",");
}

std::string JsonCoverage(const Diagnosis& diagnosis) {
    auto [plain, launched] = ColumnsOf(diagnosis);
    const auto missing = diagnosis.report.missing();
    std::vector<std::string> rows;
    for (size_t i = 0; i < model::Operations().size(); ++i) {
        const auto& info = model::Operations()[i];
        std::vector<std::string> cells;
        for (Column column : {plain, launched}) {
            Coverage c = CoverageOf(static_cast<model::Operation>(i), column, missing);
            cells.push_back(absl::StrCat(Quote(Text(column)), ":{\"cell\":", Quote(Text(c.cell)),
                                         ",\"lock\":", Quote(c.lock), ",\"reason\":", Quote(c.reason),
                                         "}"));
        }
        rows.push_back(absl::StrCat("{\"operation\":", Quote(info.id), ",\"section\":",
                                    Quote(info.section), ",\"text\":", Quote(info.text),
                                    ",\"cells\":{", absl::StrJoin(cells, ","), "}}"));
    }
    return absl::StrJoin(rows, ",");
}

}  // namespace

Diagnosis Diagnose(kernel::ProbeReport report, const std::vector<std::string>& require) {
    Diagnosis diagnosis;
    Backend requested = Backend::kAuto;
    kernel::FeatureSet wanted;
    for (const std::string& name : require) {
        if (name == "lsm") requested = Backend::kLsm;
        if (name == "signal" && requested == Backend::kAuto) requested = Backend::kSignal;
        for (size_t i = 0; i < model::kFeatureCount; ++i) {
            if (InfoOf(static_cast<Feature>(i)).name == name) wanted.set(i);
        }
    }
    diagnosis.backend = Choose(report, requested);
    std::vector<Feature> of_backend = MissingFor(
        report, requested == Backend::kAuto ? diagnosis.backend.value_or(Backend::kSignal) : requested);
    for (Feature feature : of_backend) wanted.set(static_cast<size_t>(feature));
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        Need need = InfoOf(feature).need;
        bool needed = wanted.test(i) || need == Need::kPins || need == Need::kLaunch;
        if (needed && !report.has(feature)) diagnosis.required.push_back(feature);
    }
    diagnosis.report = std::move(report);
    return diagnosis;
}

int ExitCodeOf(const Diagnosis& diagnosis) {
    return diagnosis.backend.ok() && diagnosis.required.empty() ? 0 : 1;
}

std::string DoctorText(const Diagnosis& diagnosis, bool colours) {
    std::string out = absl::StrCat("Linux ", diagnosis.report.release, ": ");
    if (diagnosis.backend.ok()) {
        bool lsm = *diagnosis.backend == Backend::kLsm;
        absl::StrAppend(&out, "backend ", BackendName(*diagnosis.backend), ", ",
                        lsm ? "refused operations are prevented"
                            : "exec and network are prevented, opens are killed after their effect, "
                              "path-only calls are seen",
                        "\n");
    } else {
        absl::StrAppend(&out, Paint(colours, kRed, "not usable"), ": ",
                        diagnosis.backend.status().message(), "\n");
    }
    for (Feature feature : diagnosis.required) {
        absl::StrAppend(&out, Paint(colours, kRed, "missing"), ": ", InfoOf(feature).name, ", ",
                        InfoOf(feature).what, "\n");
    }
    AppendFeatures(diagnosis, colours, &out);
    AppendCoverage(diagnosis, colours, &out);
    AppendCures(diagnosis, &out);
    return out;
}

std::string DoctorJson(const Diagnosis& diagnosis) {
    const auto& report = diagnosis.report;
    std::vector<std::string> required;
    for (Feature feature : diagnosis.required) required.emplace_back(InfoOf(feature).name);
    return absl::StrCat(
        "{\"release\":", Quote(report.release), ",\"ok\":",
        ExitCodeOf(diagnosis) == 0 ? "true" : "false", ",\"backend\":",
        diagnosis.backend.ok() ? Quote(BackendName(*diagnosis.backend)) : "null", ",\"why\":",
        Quote(diagnosis.backend.status().message()), ",\"missing\":", QuoteAll(required),
        ",\"cgroup2_mount\":", Quote(report.cgroup2_mount), ",\"bpffs_mount\":",
        Quote(report.bpffs_mount), ",\"lsms\":", QuoteAll(report.lsms), ",\"landlock_abi\":",
        report.landlock_abi, ",\"memlock_bytes\":\"", report.memlock_bytes, "\",\"features\":[",
        JsonFeatures(diagnosis), "],\"coverage\":[", JsonCoverage(diagnosis), "]}\n");
}

}  // namespace stockade
