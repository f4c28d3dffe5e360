#include "userspace/pipeline/export_chain.h"

#include <algorithm>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/model/wire.h"

namespace stockade::pipeline {
namespace {

constexpr size_t kChainBytes = 64;
// export_seq and chain with their heads.
constexpr size_t kAddedBytes = 16 + 3 + kChainBytes;

// Of one start of the machine.
uint64_t SlotKey(const v1::Sandbox& sandbox) { return (uint64_t{sandbox.generation()} << 32) | sandbox.slot(); }

}  // namespace

void AppendCanonical(const v1::Event& event, std::string* out) {
    const size_t before = out->size(), bytes = event.ByteSizeLong();
    out->reserve(before + bytes + kAddedBytes);
    out->resize(before + bytes);
    auto* to = reinterpret_cast<uint8_t*>(out->data() + before);
    // The order of map entries is all that could differ, and it takes a sort.
    if (event.sandbox().labels_size() < 2) {
        (void)event.SerializeWithCachedSizesToArray(to);  // returns its end
        return;
    }
    google::protobuf::io::ArrayOutputStream stream(to, static_cast<int>(bytes));
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    event.SerializeWithCachedSizes(&coded);
}

std::string ChainAfter(absl::string_view before, const v1::Event& event) {
    std::string text(before);
    if (event.chain().empty()) {
        AppendCanonical(event, &text);
        return Sha256Hex(text);
    }
    v1::Event plain = event;
    plain.clear_chain();
    AppendCanonical(plain, &text);
    return Sha256Hex(text);
}

std::string SealText(absl::string_view node, absl::string_view sandbox, uint64_t export_seq,
                     absl::string_view before) {
    return absl::StrCat("stockade-seal-1\n", node, "\n", sandbox, "\n", export_seq, "\n", before, "\n");
}

bool IsLeftOut(const v1::Event& event) { return event.has_repeat() && event.kernel_seq() == 0; }

bool IsOfTheSpool(const v1::Event& event) {
    return IsLeftOut(event) || event.has_seal() ||
           (event.has_lost() && (event.lost().stage() == "spool" || event.lost().stage() == "exporter"));
}

// `sandbox`: that of the event, serialised, where that is known.
void ExportChain::Enter(const v1::Event& event, absl::string_view sandbox, Head* head) {
    // The node's own chain has none: nobody closes it.
    if (event.sandbox().id().empty()) return;
    ChainBooks& books = head->books;
    // What the spool tells of a loss knows the id alone. Otherwise it is mostly the same again.
    if (books.sandbox.id().empty() || (!event.has_lost() && (sandbox.empty() || sandbox != head->sandbox))) {
        books.sandbox = event.sandbox();
        head->sandbox = std::string(sandbox);
    }
    (void)books.seen.Add(event.kernel_seq());  // what was there is asked before
    if (!IsOfTheSpool(event)) ++books.kinds[event.kind()];
    if (IsLeftOut(event)) {
        books.told += event.repeat().count();
        books.left_out_boot_ns = std::max(books.left_out_boot_ns, event.boot_ns());
    } else if (event.has_repeat()) {
        books.repeats += event.repeat().count();
    }
    if (event.has_lost() && event.lost().exports_size() == 0) books.told += event.lost().count();
}

bool ExportChain::Has(absl::string_view sandbox, uint64_t kernel_seq) const {
    const auto found = heads_.find(sandbox);
    return found != heads_.end() && found->second.books.seen.Contains(kernel_seq);
}

bool ExportChain::Has(const v1::Event& event) const {
    const v1::Sandbox& sandbox = event.sandbox();
    if (sandbox.id().empty() && sandbox.slot() != 0) return sealed_slots_.count(SlotKey(sandbox)) > 0;
    return Has(sandbox.id(), event.kernel_seq());
}

// Gives the head its next number and chain: over `event`, or its `bytes` where they are made. `sandbox` becomes that of the
// event, serialised. Both lie in text_.
absl::string_view ExportChain::Link(const v1::Event* event, absl::string_view bytes, Head* head, absl::string_view* sandbox) {
    text_ = head->chain;
    const size_t start = text_.size();
    if (event == nullptr) {
        text_.reserve(start + bytes.size() + kAddedBytes);
        text_.append(bytes.data(), bytes.size());
    } else if (event->export_seq() == 0 && event->chain().empty()) {
        AppendCanonical(*event, &text_);
    } else {
        v1::Event plain = *event;
        plain.clear_export_seq();
        plain.clear_chain();
        AppendCanonical(plain, &text_);
    }
    // Fields stand in the order of their numbers: this one before the first that is greater.
    const std::string number = model::WireNumber(v1::Event::kExportSeqFieldNumber, ++head->seq);
    size_t place = start, from = 0, size = 0;
    model::WireReader reader(absl::string_view(text_).substr(start));
    for (model::WireField field; reader.Next(&field) && field.number < v1::Event::kExportSeqFieldNumber;) {
        place = static_cast<size_t>(reader.at() - text_.data());
        if (field.number != v1::Event::kSandboxFieldNumber) continue;
        from = static_cast<size_t>(field.bytes.data() - text_.data());
        size = field.bytes.size();
    }
    text_.insert(place, number);
    head->chain = Sha256Hex(text_);
    // A field may stand anywhere: at the end it costs no second look at all the others.
    text_ += model::WireText(v1::Event::kChainFieldNumber, head->chain);
    *sandbox = absl::string_view(text_).substr(from, size);
    return absl::string_view(text_).substr(start);
}

StatusOr<absl::string_view> ExportChain::Add(const v1::Event& event) {
    Head& head = heads_[event.sandbox().id()];
    // What is lost of a sandbox may turn out after its end: then it is sealed once more.
    if (head.sealed && !event.has_lost() && !event.has_seal()) return AfterSeal(event.sandbox().id());
    absl::string_view sandbox;
    const absl::string_view bytes = Link(&event, {}, &head, &sandbox);
    Enter(event, sandbox, &head);
    if (event.has_seal()) Close(event.sandbox().id(), SlotKey(event.sandbox()));
    return bytes;
}

StatusOr<absl::string_view> ExportChain::Add(const model::EventBytes& event) {
    auto found = heads_.find(event.sandbox);
    if (found == heads_.end()) found = heads_.emplace(event.sandbox, Head()).first;
    Head& head = found->second;
    if (head.sealed) return AfterSeal(event.sandbox);
    absl::string_view sandbox;
    const absl::string_view bytes = Link(nullptr, event.bytes, &head, &sandbox);
    if (sandbox != head.sandbox) {
        (void)head.books.sandbox.ParseFromArray(sandbox.data(), static_cast<int>(sandbox.size()));
        head.sandbox = std::string(sandbox);
    }
    (void)head.books.seen.Add(event.kernel_seq);  // what was there is asked before
    auto kind = head.books.kinds.find(event.kind);
    if (kind == head.books.kinds.end()) kind = head.books.kinds.emplace(event.kind, 0).first;
    ++kind->second;
    return bytes;
}

Status ExportChain::AfterSeal(absl::string_view sandbox) {
    ++after_seal_;
    return absl::FailedPreconditionError(absl::StrCat("an event of ", sandbox, " after its seal"));
}

Status ExportChain::Add(v1::Event* event) {
    SK_RETURN_IF_ERROR(Add(*event).status());
    const Head& head = heads_[event->sandbox().id()];
    event->set_export_seq(head.seq);
    event->set_chain(head.chain);
    return absl::OkStatus();
}

v1::Event ExportChain::Seal(const v1::Sandbox& sandbox) {
    const Head before = HeadOf(sandbox.id());
    v1::Event event;
    event.set_node(node_);
    event.set_kind("seal");
    if (!sandbox.id().empty()) *event.mutable_sandbox() = sandbox;
    event.set_id(absl::StrCat(sandbox.id().empty() ? node_ : sandbox.id(), ".seal.", before.seq + 1));
    v1::Seal* seal = event.mutable_seal();
    seal->set_before(before.chain);
    if (key_) {
        seal->set_key(key_->public_hex());
        seal->set_signature(key_->Sign(SealText(node_, sandbox.id(), before.seq + 1, before.chain)));
    }
    return event;
}

void ExportChain::Close(const std::string& sandbox, uint64_t slot) {
    Head& head = heads_[sandbox];
    if (sandbox.empty() || head.sealed) return;
    head.sealed = true;
    head.books = {};
    head.sandbox.clear();
    head.slot = slot;
    if (slot != 0) sealed_slots_.insert(slot);
    sealed_.push_back(sandbox);
    while (sealed_.size() > kMaxSealed) {
        const auto oldest = heads_.find(sealed_.front());
        sealed_slots_.erase(oldest->second.slot);
        heads_.erase(oldest);
        sealed_.pop_front();
    }
}

void ExportChain::ForgetSlots() {
    sealed_slots_.clear();
    for (auto& [sandbox, head] : heads_) head.slot = 0;
}

ExportChain::Head ExportChain::HeadOf(const std::string& sandbox) const {
    const auto found = heads_.find(sandbox);
    return found == heads_.end() ? Head{} : found->second;
}

uint64_t ExportChain::SeqOf(const std::string& sandbox) const {
    const auto found = heads_.find(sandbox);
    return found == heads_.end() ? 0 : found->second.seq;
}

bool ExportChain::IsSealed(const std::string& sandbox) const {
    const auto found = heads_.find(sandbox);
    return found != heads_.end() && found->second.sealed;
}

void ExportChain::Restore(const v1::Event& event) {
    Head& head = heads_[event.sandbox().id()];
    if (event.export_seq() <= head.seq) return;
    head.seq = event.export_seq();
    head.chain = event.chain();
    Enter(event, "", &head);
    if (event.has_seal()) Close(event.sandbox().id(), SlotKey(event.sandbox()));
}

void ExportChain::RestoreHead(const std::string& sandbox, const Head& head, bool sealed) {
    heads_[sandbox] = head;
    heads_[sandbox].sealed = false;
    if (sealed) Close(sandbox, head.slot);
}

v1::LostRange ExportChain::Skip(const std::string& sandbox, uint64_t count) {
    Head& head = heads_[sandbox];
    v1::LostRange range;
    range.set_first(head.seq + 1);
    range.set_last(head.seq += count);
    head.chain.clear();
    return range;
}

}  // namespace stockade::pipeline
