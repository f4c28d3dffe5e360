// What the spool finds at a start, and what it keeps for the next.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "userspace/base/crc32c.h"
#include "userspace/base/errno.h"
#include "userspace/pipeline/spool.h"

namespace stockade::pipeline {
namespace {

// A hundred bytes for each of ExportChain::kMaxSealed, and some KiB, of labels and ranges of numbers, for each of SK_MAX_SLOTS that is
// open.
constexpr size_t kMaxHeadsBytes = 64 << 20;
constexpr size_t kMaxBootIdBytes = 256;
constexpr size_t kMaxAcksBytes = 64 << 10;
constexpr size_t kOpenWords = 10;  // of a line in heads, of a sandbox that is open

// Small files are lines of words and a last line with their checksum.
std::string WithChecksum(const std::vector<std::string>& lines) {
    std::string text = absl::StrJoin(lines, "\n");
    if (!text.empty()) text += "\n";
    return absl::StrCat(text, "crc32c ", Crc32c(text), "\n");
}

StatusOr<std::vector<std::string>> CheckedLines(const std::string& path, size_t max_bytes) {
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
    const size_t tail = text.rfind("crc32c ");
    uint32_t crc = 0;
    if (tail == text.npos || !absl::SimpleAtoi(absl::StripSuffix(text.substr(tail + 7), "\n"), &crc) ||
        crc != Crc32c(absl::string_view(text).substr(0, tail))) {
        return absl::DataLossError(absl::StrCat(path, " is damaged"));
    }
    return std::vector<std::string>(absl::StrSplit(text.substr(0, tail), '\n', absl::SkipEmpty()));
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// "<lane>-<first position>.seg"
bool ParseName(absl::string_view name, int* lane, uint64_t* first) {
    return absl::EndsWith(name, ".seg") && name.size() == 26 && name[1] == '-' &&
           absl::SimpleAtoi(name.substr(0, 1), lane) && absl::SimpleAtoi(name.substr(2, 20), first) &&
           *lane < kLanes && *first > 0;
}

}  // namespace

StatusOr<std::unique_ptr<Spool>> Spool::Open(Options options) {
    if (options.readers.empty())
        return absl::InvalidArgumentError("a spool without a reader would keep everything");
    // Below it giving up a segment could give up all there is.
    if (options.max_bytes < 4 * options.segment_bytes) {
        return absl::InvalidArgumentError(absl::StrCat("spool ", options.dir, ": at least ",
                                                       4 * options.segment_bytes, " bytes are needed"));
    }
    std::unique_ptr<Spool> spool(new Spool(std::move(options)));
    SK_RETURN_IF_ERROR(Annotate(spool->Load(), absl::StrCat("open the spool ", spool->options_.dir)));
    return spool;
}

Status Spool::Load() {
    std::lock_guard lock(mutex_);
    if (mkdir(options_.dir.c_str(), 0700) != 0 && errno != EEXIST)
        return ErrnoStatus(errno, absl::StrCat("make ", options_.dir));
    SK_ASSIGN_OR_RETURN(lock_, Fd::Open(PathOf("lock"), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
        return absl::FailedPreconditionError("another process has it open");
    for (const std::string& name : options_.readers) readers_[name];
    SK_ASSIGN_OR_RETURN(boot_, ReadFile(options_.boot_id_path, kMaxBootIdBytes));
    boot_ = std::string(absl::StripAsciiWhitespace(boot_));
    SK_RETURN_IF_ERROR(LoadHeads());
    SK_RETURN_IF_ERROR(LoadAcks());
    Found found;
    uint64_t damaged = 0;
    for (int lane = 0; lane < kLanes; ++lane)
        SK_RETURN_IF_ERROR(LoadLane(static_cast<Lane>(lane), heads_saved_, &found, &damaged));
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    // Also behind what is taken back now: a position is given once.
    next_position_ = std::max(next_position_, marked_ + 1);
    if (!found.empty()) next_position_ = std::max(next_position_, found.back().first + 1);
    // What is damaged may have been handed out, and so what stands behind it.
    if (damaged == 0) SK_RETURN_IF_ERROR(CutUnfinished(&found));
    RestoreChains(found);
    // A disk that cannot be written is known now, and not when the first event comes. One that is full may have room
    // once what is here has been delivered.
    if (const Status saved = ReplaceFile(PathOf("acks"), AcksText()); !saved.ok()) {
        Count(saved);
        if (!IsDiskFull(saved)) return saved;
    }
    // A position that was given may be in a record that is torn or damaged.
    const bool whole = damaged == 0 && counters_.torn == 0 && counters_.unfinished == 0;
    next_position_ += damaged + counters_.torn;
    first_of_start_ = next_position_;
    names_unsynced_ = true;
    marked_ = next_position_ - 1;
    if (damaged > 0) AccountForDamage(damaged);
    // A start of the machine gives its slots anew.
    if (heads_boot_ != boot_) chain_.ForgetSlots();
    // From here on each position is in a file again, and each slot of this start.
    if (!whole || heads_boot_ != boot_) SecureHeads();
    return absl::OkStatus();
}

// A flush writes one lane after the other. Behind the last mark a position that is missing is of one that was cut there.
Status Spool::CutUnfinished(Found* found) {
    uint64_t expected = std::max(marked_ + 1, heads_saved_);
    auto at = std::lower_bound(found->begin(), found->end(), expected,
                               [](const auto& entry, uint64_t position) { return entry.first < position; });
    while (at != found->end() && at->first == expected) ++at, ++expected;
    if (at == found->end()) return absl::OkStatus();
    for (int lane = 0; lane < kLanes; ++lane) SK_RETURN_IF_ERROR(CutLane(static_cast<Lane>(lane), expected));
    counters_.unfinished += static_cast<uint64_t>(found->end() - at);
    found->erase(at, found->end());
    return absl::OkStatus();
}

// They stand at the end of the lane's last segment: another is begun only behind a mark.
Status Spool::CutLane(Lane lane, uint64_t from) {
    LaneState& state = lanes_[lane];
    if (state.segments.empty()) return absl::OkStatus();
    Segment& segment = state.segments.back();
    SK_ASSIGN_OR_RETURN(const std::string data, ReadFile(segment.path, segment.bytes + kMaxRecordBytes));
    size_t at = std::min(kFileMagic.size(), data.size()), good = at;
    SpoolRecord record;
    while (ParseRecord(data, &at, &record) == Parsed::kRecord && (record.lane == kMark || record.position < from)) good = at;
    if (good == segment.bytes) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(SpoolFile file, SpoolFile::OpenForAppend(segment.path, good));
    disk_bytes_ -= segment.bytes - good;
    segment.bytes = good;
    state.file = std::make_shared<SpoolFile>(std::move(file));
    return absl::OkStatus();
}

namespace {

// Numbers that are missing, by sandbox.
using Missing = std::map<std::string, std::vector<v1::LostRange>>;

void TakeOutTold(const v1::Event& event, Missing* missing) {
    const auto found = missing->find(event.sandbox().id());
    if (found == missing->end()) return;
    for (const v1::LostRange& told : event.lost().exports()) {
        std::erase_if(found->second, [&](const v1::LostRange& range) {
            return told.first() <= range.first() && range.last() <= told.last();
        });
    }
}

}  // namespace

void Spool::RestoreChains(const Found& found) {
    Missing missing;
    std::map<std::string, v1::Sandbox> sandboxes;
    for (const auto& [position, event] : found) {
        // What is older is in the heads, or of a sandbox that was sealed and forgotten: it must not begin again.
        if (position < heads_saved_) continue;
        const std::string& id = event.sandbox().id();
        const uint64_t before = chain_.SeqOf(id);
        if (event.export_seq() > before + 1) {
            v1::LostRange& range = missing[id].emplace_back();
            range.set_first(before + 1);
            range.set_last(event.export_seq() - 1);
            sandboxes[id] = event.sandbox();
        }
        chain_.Restore(event);
    }
    if (missing.empty()) return;
    // The events that tell of what was given up come later than that was.
    for (const auto& [position, event] : found) TakeOutTold(event, &missing);
    for (const auto& [id, ranges] : missing) {
        if (!ranges.empty()) TellRanges(sandboxes[id], ranges, "spool", "not on the disk");
    }
}

Status Spool::LoadLane(Lane lane, uint64_t from, Found* found, uint64_t* damaged) {
    LaneState& state = lanes_[lane];
    DIR* dir = opendir(options_.dir.c_str());
    if (!dir) return ErrnoStatus(errno, absl::StrCat("list ", options_.dir));
    while (const dirent* entry = readdir(dir)) {
        int number = 0;
        Segment segment;
        if (!ParseName(entry->d_name, &number, &segment.first) || number != lane) continue;
        segment.path = PathOf(entry->d_name);
        struct stat st{};
        if (stat(segment.path.c_str(), &st) == 0) segment.bytes = static_cast<uint64_t>(st.st_size);
        state.segments.push_back(std::move(segment));
    }
    closedir(dir);
    std::sort(state.segments.begin(), state.segments.end(),
              [](const Segment& a, const Segment& b) { return a.first < b.first; });
    for (size_t i = 0; i < state.segments.size(); ++i) {
        Segment& segment = state.segments[i];
        const bool is_last = i + 1 == state.segments.size();
        if (!is_last) segment.last = state.segments[i + 1].first - 1;
        // What the snapshot of heads tells of need not be read again.
        if (!is_last && segment.last < from) continue;
        SK_RETURN_IF_ERROR(LoadSegment(state, segment, is_last, found, damaged));
    }
    for (const Segment& segment : state.segments) disk_bytes_ += segment.bytes;
    return absl::OkStatus();
}

Status Spool::LoadSegment(LaneState& state, Segment& segment, bool is_last, Found* found, uint64_t* damaged) {
    SK_ASSIGN_OR_RETURN(const std::string data, ReadFile(segment.path, segment.bytes + kMaxRecordBytes));
    size_t at = std::min(kFileMagic.size(), data.size());
    if (!absl::StartsWith(data, kFileMagic) && data.size() >= kFileMagic.size()) ++*damaged;
    SpoolRecord record;
    Parsed parsed;
    while ((parsed = ParseRecord(data, &at, &record)) == Parsed::kRecord || parsed == Parsed::kDamaged) {
        v1::Event event;
        if (parsed == Parsed::kRecord && record.lane == kMark) {
            marked_ = std::max(marked_, record.position);
        } else if (parsed == Parsed::kRecord &&
            event.ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size()))) {
            found->emplace_back(record.position, std::move(event));
        } else {
            ++*damaged;
        }
    }
    if (parsed == Parsed::kTorn) ++counters_.torn;
    if (!is_last) {
        // Whoever wrote it was killed, and may not have synced it.
        SK_ASSIGN_OR_RETURN(SpoolFile file, SpoolFile::OpenForAppend(segment.path, segment.bytes));
        rolled_.push_back(std::make_shared<SpoolFile>(std::move(file)));
        return absl::OkStatus();
    }
    // Written on behind what is whole. A cut in the magic leaves nothing that is.
    if (data.size() < kFileMagic.size()) at = 0;
    SK_ASSIGN_OR_RETURN(SpoolFile file, SpoolFile::OpenForAppend(segment.path, at));
    segment.bytes = at;
    state.file = std::make_shared<SpoolFile>(std::move(file));
    return absl::OkStatus();
}

// Which sandbox a damaged record was of is not known. If it was the last of its sandbox, its number may
// have been exported: so each that is open leaves out as many numbers as records are damaged.
void Spool::AccountForDamage(uint64_t damaged) {
    counters_.lost_damaged += damaged;
    std::vector<std::string> open;
    for (const auto& [sandbox, head] : chain_.heads()) {
        if (!head.sealed) open.push_back(sandbox);
    }
    for (const std::string& sandbox : open) {
        v1::Event event = LostEvent("spool", "damaged", sandbox.empty() ? damaged : 0);
        if (!sandbox.empty()) {
            *event.mutable_sandbox() = chain_.HeadOf(sandbox).books.sandbox;
            event.mutable_sandbox()->set_id(sandbox);
        }
        *event.mutable_lost()->add_exports() = chain_.Skip(sandbox, damaged);
        (void)AppendLocked(event, false);  // small: cannot fail
    }
    if (std::find(open.begin(), open.end(), "") == open.end()) damage_to_tell_ += damaged;
}

// --- heads: "position <next>", "boot <id>", then "<seq> <chain or -> <sealed> <sandbox>", of one that is sealed "<slot>", of one
// that is open "<kernel numbers> <repeats> <told> <left out until> <kind:count,...> <stockade.v1.Sandbox>" ---

namespace {

std::string BooksText(const ChainBooks& books) {
    return absl::StrCat(" ", books.seen.ToText(), " ", books.repeats, " ", books.told, " ", books.left_out_boot_ns, " ",
                        absl::StrJoin(books.kinds, ",", absl::PairFormatter(":")), " ",
                        absl::WebSafeBase64Escape(books.sandbox.SerializeAsString()));
}

// `words`: from the fifth of the line on.
bool ParseBooks(absl::Span<const std::string> words, ChainBooks* books) {
    const auto seen = KernelNumbers::FromText(words[0]);
    std::string sandbox;
    if (!seen || !absl::SimpleAtoi(words[1], &books->repeats) || !absl::SimpleAtoi(words[2], &books->told) ||
        !absl::SimpleAtoi(words[3], &books->left_out_boot_ns) || !absl::WebSafeBase64Unescape(words[5], &sandbox) || !books->sandbox.ParseFromString(sandbox))
        return false;
    books->seen = *seen;
    for (const absl::string_view word : absl::StrSplit(words[4], ',', absl::SkipEmpty())) {
        const std::pair<std::string, std::string> kind = absl::StrSplit(word, absl::MaxSplits(':', 1));
        if (!absl::SimpleAtoi(kind.second, &books->kinds[kind.first])) return false;
    }
    return true;
}

}  // namespace

Spool::Snapshot Spool::TakeSnapshot() const {
    std::vector<std::string> lines = {absl::StrCat("position ", next_position_), absl::StrCat("boot ", boot_)};
    for (const auto& [sandbox, head] : chain_.heads()) {
        lines.push_back(absl::StrCat(head.seq, " ", head.chain.empty() ? "-" : head.chain, " ",
                                     head.sealed ? 1 : 0, " ", absl::CEscape(sandbox),
                                     head.sealed ? absl::StrCat(" ", head.slot) : sandbox.empty() ? "" : BooksText(head.books)));
    }
    return {WithChecksum(lines), next_position_};
}

Status Spool::LoadHeads() {
    if (!Exists(PathOf("heads"))) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(const std::vector<std::string> lines, CheckedLines(PathOf("heads"), kMaxHeadsBytes));
    for (const std::string& line : lines) {
        const std::vector<std::string> words = absl::StrSplit(line, ' ');
        if (words.size() == 2 && words[0] == "position" && absl::SimpleAtoi(words[1], &next_position_))
            continue;
        if (words.size() == 2 && words[0] == "boot") {
            heads_boot_ = words[1];
            continue;
        }
        ExportChain::Head head;
        std::string sandbox;
        if ((words.size() != 4 && words.size() != 5 && words.size() != kOpenWords) ||
            !absl::SimpleAtoi(words[0], &head.seq) || !absl::CUnescape(words[3], &sandbox) ||
            (words.size() == 5 && !absl::SimpleAtoi(words[4], &head.slot)) ||
            (words.size() == kOpenWords && !ParseBooks(absl::MakeConstSpan(words).subspan(4), &head.books))) {
            return absl::DataLossError(absl::StrCat(PathOf("heads"), ": not a head: ", line));
        }
        if (words[1] != "-") head.chain = words[1];
        chain_.RestoreHead(sandbox, head, words[2] == "1");
    }
    heads_saved_ = heads_on_disk_ = next_position_;
    return absl::OkStatus();
}

std::string Spool::AcksText() const {
    std::vector<std::string> lines;
    for (const auto& [name, reader] : readers_)
        lines.push_back(absl::StrCat(reader.acked, " ", absl::CEscape(name)));
    return WithChecksum(lines);
}

// A reader that the configuration does not have any more holds nothing back.
Status Spool::LoadAcks() {
    if (!Exists(PathOf("acks"))) return absl::OkStatus();
    const auto lines = CheckedLines(PathOf("acks"), kMaxAcksBytes);
    // Without it all that is there is sent again, which readers of export_seq recognise: no reason not to start.
    if (absl::IsDataLoss(lines.status())) return absl::OkStatus();
    SK_RETURN_IF_ERROR(lines.status());
    for (const std::string& line : *lines) {
        const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 1));
        std::string name;
        uint64_t acked = 0;
        if (words.size() != 2 || !absl::SimpleAtoi(words[0], &acked) || !absl::CUnescape(words[1], &name))
            continue;
        next_position_ = std::max(next_position_, acked + 1);
        if (const auto reader = readers_.find(name); reader != readers_.end()) reader->second.acked = acked;
    }
    return absl::OkStatus();
}

}  // namespace stockade::pipeline
