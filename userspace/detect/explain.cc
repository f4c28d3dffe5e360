#include "userspace/detect/explain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "userspace/detect/evaluate.h"
#include "userspace/detect/text.h"

namespace stockade::detect {
namespace {

std::string Shown(const FieldValue& value) {
    if (value.state == FieldValue::State::kUnknown) return "<unknown>";
    if (value.state == FieldValue::State::kAbsent) return "<absent>";
    std::vector<std::string> texts;
    for (const Text& text : value.texts)
        texts.push_back(absl::StrReplaceAll(text.raw, {{std::string(1, kHole), "<unknown>"}}));
    return absl::StrJoin(texts, " | ");
}

Explanation Part(const Expr& expr, const Rule& rule, EventView& view) {
    Explanation out;
    out.truth = Evaluate(expr, rule.atoms, view);
    if (expr.kind == Expr::Kind::kAtom) {
        const Predicate& atom = rule.atoms[static_cast<size_t>(expr.atom)];
        out.what = atom.written;
        // All texts of the event would be the event again.
        if (atom.field != nullptr) out.value = Shown(view.Get(*atom.field));
        if (atom.other != nullptr) absl::StrAppend(&out.value, " against ", Shown(view.Get(*atom.other)));
        return out;
    }
    if (expr.kids.size() == 1 && expr.kind != Expr::Kind::kNot) {
        Explanation only = Part(expr.kids[0], rule, view);
        if (expr.name.empty()) return only;
        out.parts.push_back(std::move(only));
    } else {
        for (const Expr& kid : expr.kids) out.parts.push_back(Part(kid, rule, view));
    }
    const char* kind = expr.kind == Expr::Kind::kAnd  ? "all of"
                       : expr.kind == Expr::Kind::kOr ? "any of"
                                                      : "not";
    out.what = expr.name.empty()       ? kind
               : expr.kids.size() == 1 ? expr.name
                                       : absl::StrCat(expr.name, ": ", kind);
    return out;
}

}  // namespace

Explanation Explain(const Rule& rule, const v1::Event& event) {
    Explanation out;
    out.what = rule.title;
    if (!Belongs(rule.source, event)) {
        out.parts.push_back(
            {.what = absl::StrCat("log source ", ToString(rule.source)), .value = event.kind()});
        return out;
    }
    EventView view(event);
    out.parts.push_back(Part(rule.expr, rule, view));
    out.truth = out.parts[0].truth;
    return out;
}

absl::string_view TruthName(Truth truth) {
    static constexpr absl::string_view kNames[] = {"no", "undecidable", "yes"};
    return kNames[static_cast<int>(truth)];
}

}  // namespace stockade::detect
