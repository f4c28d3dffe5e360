#include "userspace/dns/code_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_message.h"
#include "bpf/wire/dns_budget.h"
#include "userspace/base/sha256.h"

namespace stockade::dns {
namespace {

constexpr int kVersion = 1;
constexpr absl::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr size_t kMaxWord = 32;
// No single step of the code is dearer: 253 characters then stay far below kUncodable.
constexpr uint32_t kMaxCost = 4096;
// One bit after each label says whether another one follows.
constexpr uint32_t kMoreLabels = SK_DNS_BIT;
constexpr uint8_t kNoLetter = 0xff;

constexpr std::array<uint8_t, 256> MakeIndex() {
    std::array<uint8_t, 256> index{};
    for (auto& entry : index) entry = kNoLetter;
    for (size_t i = 0; i < kAlphabet.size(); ++i)
        index[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
    return index;
}
constexpr std::array<uint8_t, 256> kIndex = MakeIndex();

uint8_t IndexOf(char c) { return kIndex[static_cast<uint8_t>(c)]; }

Status Corrupt(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("DNS model: ", what));
}

// The text before its last line, which carries the digest of all before it.
StatusOr<absl::string_view> CheckedBody(absl::string_view text) {
    const size_t end = text.rfind("\nend ");
    if (end == absl::string_view::npos) return Corrupt("no end line: was it cut?");
    const absl::string_view body = text.substr(0, end + 1);
    if (absl::StripAsciiWhitespace(text.substr(end + 5)) != Sha256Hex(body))
        return Corrupt("its bytes are not those of its digest");
    return body;
}

bool ReadCost(absl::string_view text, uint32_t* cost) {
    return absl::SimpleAtoi(text, cost) && *cost > 0 && *cost <= kMaxCost;
}

}  // namespace

Status CodeModel::ReadLine(absl::string_view line, std::vector<std::pair<std::string, uint32_t>>& words) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields[0] == "word" && fields.size() == 3) {
        uint32_t cost;
        const bool plain =
            std::all_of(fields[1].begin(), fields[1].end(), [](char c) { return IndexOf(c) != kNoLetter; });
        if (fields[1].size() < 1 || fields[1].size() > kMaxWord || !plain || !ReadCost(fields[2], &cost))
            return Corrupt(absl::StrCat("bad line '", line, "'"));
        if (!words.empty() && words.back().first >= fields[1])
            return Corrupt(absl::StrCat("words out of order at '", fields[1], "'"));
        words.emplace_back(fields[1], cost);
        return absl::OkStatus();
    }
    if (fields[0] == "after" && fields.size() == kLetters + 4) {
        const size_t from = fields[1] == "START"    ? kStart
                            : fields[1].size() == 1 ? IndexOf(fields[1][0])
                                                    : kNoLetter;
        if (from == kNoLetter || have_after_[from])
            return Corrupt(absl::StrCat("'after ", fields[1], "' twice or of no letter"));
        have_after_[from] = true;
        for (size_t i = 0; i < kLetters + 2; ++i) {
            uint32_t cost;
            if (!ReadCost(fields[i + 2], &cost))
                return Corrupt(absl::StrCat("bad cost in 'after ", fields[1], "'"));
            after_[from][i] = static_cast<uint16_t>(cost);
        }
        return absl::OkStatus();
    }
    return Corrupt(absl::StrCat("unknown line '", line.substr(0, 40), "'"));
}

// Breadth first, so that the children of a node stand together.
void CodeModel::BuildTrie(const std::vector<std::pair<std::string, uint32_t>>& words) {
    struct Range {
        size_t begin, end, depth, node;
    };
    nodes_.assign(1, Node());
    std::vector<Range> queue = {{0, words.size(), 0, 0}};
    for (size_t next = 0; next < queue.size(); ++next) {
        Range range = queue[next];
        // Words are sorted: the one that ends at this node comes first.
        if (range.begin < range.end && words[range.begin].first.size() == range.depth)
            nodes_[range.node].cost = words[range.begin++].second;
        nodes_[range.node].first_child = static_cast<uint32_t>(nodes_.size());
        for (size_t i = range.begin; i < range.end;) {
            size_t j = i;
            while (j < range.end && words[j].first[range.depth] == words[i].first[range.depth]) ++j;
            queue.push_back({i, j, range.depth + 1, nodes_.size()});
            nodes_.push_back({.letter = IndexOf(words[i].first[range.depth])});
            nodes_[range.node].children++;
            i = j;
        }
    }
}

StatusOr<CodeModel> CodeModel::Parse(absl::string_view text) {
    SK_ASSIGN_OR_RETURN(const absl::string_view body, CheckedBody(text));
    CodeModel model;
    std::vector<std::pair<std::string, uint32_t>> words;
    const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripSuffix(body, "\n"), '\n');
    absl::string_view version = lines[0];
    if (!absl::ConsumePrefix(&version, "stockade-dns-model ") || !absl::SimpleAtoi(version, &model.version_))
        return Corrupt("no version in the first line");
    if (model.version_ != kVersion)
        return Corrupt(absl::StrCat("version ", model.version_, ", this program reads version ", kVersion));
    if (lines.size() < 2 || lines[1] != absl::StrCat("letters ", kAlphabet))
        return Corrupt("made for another alphabet");
    for (size_t i = 2; i < lines.size(); ++i) SK_RETURN_IF_ERROR(model.ReadLine(lines[i], words));
    for (const bool have : model.have_after_) {
        if (!have) return Corrupt("a letter without its line 'after'");
    }
    model.BuildTrie(words);
    return model;
}

const CodeModel::Node* CodeModel::Child(const Node& node, uint8_t letter) const {
    for (uint32_t i = node.first_child; i < node.first_child + node.children; ++i) {
        if (nodes_[i].letter == letter) return &nodes_[i];
    }
    return nullptr;
}

uint32_t CodeModel::Label(absl::string_view label) const {
    if (label.empty() || label.size() > SK_DNS_LABEL_BYTES) return kUncodable;
    std::array<uint8_t, SK_DNS_LABEL_BYTES> letters;
    // best[i]: cheapest spelling of the first i letters, without the end.
    std::array<uint32_t, SK_DNS_LABEL_BYTES + 1> best;
    best.fill(kUncodable);
    best[0] = 0;
    for (size_t i = 0; i < label.size(); ++i) {
        letters[i] = IndexOf(label[i]);
        if (letters[i] == kNoLetter) return kUncodable;
    }
    for (size_t i = 0; i < label.size(); ++i) {
        const auto& after = after_[i == 0 ? kStart : letters[i - 1]];
        best[i + 1] = std::min(best[i + 1], best[i] + after[letters[i]]);
        const uint32_t word = best[i] + after[kWord];
        const Node* node = nodes_.data();
        for (size_t j = i; j < label.size() && (node = Child(*node, letters[j])) != nullptr; ++j) {
            if (node->cost) best[j + 1] = std::min(best[j + 1], word + node->cost);
        }
    }
    return best[label.size()] + after_[letters[label.size() - 1]][kEnd];
}

uint32_t CodeModel::Name(absl::string_view subdomain) const {
    uint32_t cost = kMoreLabels;
    if (subdomain.empty()) return cost;
    for (absl::string_view label : absl::StrSplit(subdomain, '.')) {
        const uint32_t bits = Label(label);
        if (bits >= kUncodable) return kUncodable;
        cost += bits + kMoreLabels;
    }
    return cost;
}

}  // namespace stockade::dns
