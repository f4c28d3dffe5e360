// Suffix list, model and lists of zones put together for a meter.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/dns/meter.h"

namespace stockade::dns {

// Texts, not paths: this room opens no files. An empty one means what is built in.
struct KnowledgeTexts {
    std::string suffix_list;
    std::string model;
    std::string ranked;  // zones, one a line; "-" for none at all
    std::vector<std::string> internal;
    std::vector<std::pair<std::string, uint32_t>> granted;  // zone, bytes
    Budgets budgets;
};
StatusOr<Knowledge> MakeKnowledge(const KnowledgeTexts& texts);

// "256", "256B", "4KiB": bytes, at most 1 GiB; "none" is Budgets::kUnlimited.
StatusOr<uint32_t> ParseBudget(absl::string_view text);
// "zone=256B,ranked=4KiB,total=2KiB,reverse=none", any of them, in any order.
Status ParseBudgets(absl::string_view text, Budgets* budgets);

}  // namespace stockade::dns
