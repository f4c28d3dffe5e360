#include "userspace/dns/knowledge.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/dns/embedded.h"

namespace stockade::dns {

StatusOr<uint32_t> ParseBudget(absl::string_view text) {
    if (text == "none") return Budgets::kUnlimited;
    absl::string_view number = text;
    uint64_t scale = 1, value;
    if (absl::ConsumeSuffix(&number, "KiB")) {
        scale = 1024;
    } else if (absl::ConsumeSuffix(&number, "MiB")) {
        scale = 1024 * 1024;
    } else {
        absl::ConsumeSuffix(&number, "B");
    }
    constexpr uint64_t kMost = 1 << 30;
    // SimpleAtoi would take signs and blanks.
    const bool digits = number.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(number, &value) || value > kMost || value * scale > kMost)
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is no budget: 256B, 4KiB or none, at most 1 GiB"));
    return static_cast<uint32_t>(value * scale);
}

Status ParseBudgets(absl::string_view text, Budgets* budgets) {
    for (absl::string_view item : absl::StrSplit(text, ',')) {
        const std::pair<absl::string_view, absl::string_view> parts =
            absl::StrSplit(item, absl::MaxSplits('=', 1));
        if (!absl::StrContains(item, '='))
            return absl::InvalidArgumentError(absl::StrCat(
                "'", item,
                "' has no amount: a budget is zone=256B, ranked=4KiB, total=2KiB or reverse=none"));
        uint32_t* which = parts.first == "zone"      ? &budgets->zone
                          : parts.first == "ranked"  ? &budgets->ranked
                          : parts.first == "total"   ? &budgets->total
                          : parts.first == "reverse" ? &budgets->reverse
                                                     : nullptr;
        if (which == nullptr)
            return absl::InvalidArgumentError(
                absl::StrCat("'", item, "': a budget is zone=, ranked=, total= or reverse="));
        SK_ASSIGN_OR_RETURN(*which, ParseBudget(parts.second));
    }
    // A warning after the block would never come.
    if (budgets->zone != Budgets::kUnlimited) budgets->warn_zone = budgets->zone / 2;
    if (budgets->ranked / 8 < budgets->warn_ranked) budgets->warn_ranked = budgets->ranked / 8;
    return absl::OkStatus();
}

StatusOr<Knowledge> MakeKnowledge(const KnowledgeTexts& texts) {
    const auto or_built_in = [](const std::string& text, absl::string_view built_in) {
        return text.empty() ? built_in : absl::string_view(text);
    };
    SK_ASSIGN_OR_RETURN(SuffixList suffixes,
                        SuffixList::Parse(or_built_in(texts.suffix_list, EmbeddedSuffixList())));
    SK_ASSIGN_OR_RETURN(CodeModel model, CodeModel::Parse(or_built_in(texts.model, EmbeddedModel())));
    Knowledge out = {
        .suffixes = std::move(suffixes), .model = std::move(model), .tiers = {}, .budgets = texts.budgets};
    // Later entries replace earlier ones: what the operator says stands last.
    if (texts.ranked != "-") {
        const Status ranked =
            out.tiers.AddLines(or_built_in(texts.ranked, EmbeddedRankedZones()), Tier::kRanked);
        SK_RETURN_IF_ERROR(Annotate(ranked, "ranked zones"));
    }
    SK_RETURN_IF_ERROR(out.tiers.AddLines(EmbeddedProviderZones(), Tier::kProvider));
    SK_RETURN_IF_ERROR(out.tiers.AddLines(EmbeddedReservedZones(), Tier::kInternal));
    for (const std::string& zone : texts.internal) SK_RETURN_IF_ERROR(out.tiers.Add(zone, Tier::kInternal));
    for (const auto& [zone, bytes] : texts.granted)
        SK_RETURN_IF_ERROR(out.tiers.Add(zone, Tier::kGranted, bytes));
    return out;
}

}  // namespace stockade::dns
