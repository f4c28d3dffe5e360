#include "tests/bench/stats.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace stockade::bench {
namespace {

double At(const std::vector<double>& sorted, double part) {
    const auto index = static_cast<size_t>(std::llround(part * static_cast<double>(sorted.size() - 1)));
    return sorted[index];
}

std::string Short(double value) {
    if (std::abs(value) >= 100) return absl::StrFormat("%.0f", value);
    return std::abs(value) >= 10 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.2f", value);
}

std::string Spread(const Quantiles& q) { return absl::StrCat(Short(q.p10), "..", Short(q.p90)); }

std::string Quoted(absl::string_view text) {
    std::string out = "\"";
    for (const char byte : text) {
        if (byte == '"' || byte == '\\') {
            out.push_back('\\');
            out.push_back(byte);
        } else if (static_cast<unsigned char>(byte) < 0x20) {
            absl::StrAppendFormat(&out, "\\u%04x", byte);
        } else {
            out.push_back(byte);
        }
    }
    out.push_back('"');
    return out;
}

std::string Json(const Quantiles& q) {
    return absl::StrFormat("{\"median\": %.3f, \"p10\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"samples\": %d}",
                           q.p50, q.p10, q.p90, q.p99, q.samples);
}

std::string Json(const Figure& figure) {
    std::vector<std::string> parts = {absl::StrCat("\"name\": ", Quoted(figure.name)),
                                      absl::StrCat("\"unit\": ", Quoted(figure.unit))};
    if (figure.baseline) {
        parts.push_back(absl::StrCat("\"baseline_is\": ", Quoted(figure.baseline_is)));
        parts.push_back(absl::StrCat("\"baseline\": ", Json(*figure.baseline)));
    }
    if (figure.with) parts.push_back(absl::StrCat("\"with\": ", Json(*figure.with)));
    if (figure.added) parts.push_back(absl::StrCat("\"added\": ", Json(*figure.added)));
    if (figure.ratio()) parts.push_back(absl::StrFormat("\"ratio\": %.4f", *figure.ratio()));
    if (figure.quiet()) parts.push_back(absl::StrFormat("\"added_quiet\": %.3f", *figure.quiet()));
    if (figure.floor) parts.push_back(absl::StrFormat("\"floor\": %.3f", *figure.floor));
    if (figure.over_floor) parts.push_back(absl::StrCat("\"over_floor\": ", Json(*figure.over_floor)));
    if (figure.target) parts.push_back(absl::StrCat("\"target\": ", Quoted(figure.target->text)));
    if (figure.met()) parts.push_back(absl::StrCat("\"met\": ", *figure.met() ? "true" : "false"));
    if (!figure.note.empty()) parts.push_back(absl::StrCat("\"note\": ", Quoted(figure.note)));
    if (!figure.skipped.empty()) parts.push_back(absl::StrCat("\"skipped\": ", Quoted(figure.skipped)));
    return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

std::string Row(const Figure& figure) {
    if (!figure.skipped.empty()) return absl::StrFormat("%-42s  skipped: %s\n", figure.name, figure.skipped);
    std::string row = absl::StrFormat("%-42s %-5s %10s %10s %10s %6s", figure.name, figure.unit,
                                      figure.baseline ? Short(figure.baseline->p50) : "-",
                                      figure.with ? Short(figure.with->p50) : "-",
                                      figure.added ? Short(figure.added->p50) : "-",
                                      figure.ratio() ? absl::StrFormat("%.2f", *figure.ratio()) : "-");
    absl::StrAppendFormat(&row, "  %-17s",
                          figure.added  ? Spread(*figure.added)
                          : figure.with ? Spread(*figure.with)
                                        : "");
    absl::StrAppendFormat(&row, " %8s %8s", figure.quiet() ? Short(*figure.quiet()) : "-",
                          figure.with && figure.unit == "ms" ? Short(figure.with->p99) : "-");
    if (figure.floor) absl::StrAppend(&row, "  floor ", Short(*figure.floor));
    if (figure.over_floor) absl::StrAppend(&row, ", over it ", Short(figure.over_floor->p50));
    if (figure.met()) absl::StrAppend(&row, "  ", *figure.met() ? "met: " : "MISSED: ", figure.target->text);
    if (!figure.note.empty()) absl::StrAppend(&row, "  (", figure.note, ")");
    return row + "\n";
}

}  // namespace

Quantiles QuantilesOf(std::vector<double> samples) {
    Quantiles q;
    q.samples = samples.size();
    if (samples.empty()) return q;
    std::sort(samples.begin(), samples.end());
    q.p10 = At(samples, 0.1);
    q.p50 = At(samples, 0.5);
    q.p90 = At(samples, 0.9);
    q.p99 = At(samples, 0.99);
    return q;
}

double Median(std::vector<double> samples) { return QuantilesOf(std::move(samples)).p50; }

Quantiles Differences(const std::vector<double>& baseline, const std::vector<double>& with) {
    std::vector<double> differences;
    for (size_t i = 0; i < std::min(baseline.size(), with.size()); i++)
        differences.push_back(with[i] - baseline[i]);
    return QuantilesOf(std::move(differences));
}

std::optional<double> Figure::ratio() const {
    if (!baseline || !with || baseline->p50 == 0) return std::nullopt;
    return with->p50 / baseline->p50;
}

std::optional<double> Figure::quiet() const {
    if (!baseline || !with) return std::nullopt;
    return with->p10 - baseline->p10;
}

std::optional<bool> Figure::met() const {
    if (!target || !with) return std::nullopt;
    switch (target->of) {
        case Target::Of::kMedian:
            return with->p50 <= target->limit;
        case Target::Of::kP99:
            return with->p99 <= target->limit;
        case Target::Of::kWithAtLeast:
            return with->p50 >= target->limit;
        case Target::Of::kAddedMedian:
            return added ? std::optional(added->p50 <= target->limit) : std::nullopt;
        case Target::Of::kRatio:
            return ratio() ? std::optional(*ratio() <= target->limit) : std::nullopt;
        case Target::Of::kOverFloor:
            return over_floor ? std::optional(over_floor->p50 <= target->limit) : std::nullopt;
    }
    return std::nullopt;
}

std::string ToTable(const std::vector<Figure>& figures) {
    std::string table = absl::StrFormat("%-42s %-5s %10s %10s %10s %6s  %-17s %8s %8s\n", "figure", "unit",
                                        "baseline", "with", "added", "ratio", "p10..p90", "quiet", "p99");
    for (const Figure& figure : figures) table += Row(figure);
    return table;
}

std::string ToJson(const std::vector<Figure>& figures,
                   const std::vector<std::pair<std::string, std::string>>& about) {
    std::string json = "{\n";
    for (const auto& [key, value] : about)
        absl::StrAppend(&json, "  ", Quoted(key), ": ", Quoted(value), ",\n");
    absl::StrAppend(&json, "  \"figures\": [\n    ",
                    absl::StrJoin(figures, ",\n    ",
                                  [](std::string* out, const Figure& figure) { out->append(Json(figure)); }),
                    "\n  ]\n}\n");
    return json;
}

}  // namespace stockade::bench
