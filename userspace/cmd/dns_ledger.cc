#include "userspace/cmd/dns_ledger.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"

namespace stockade::cmd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigestBytes = 32;
// All zones of a budget, at 30 bytes, and an id: a label of 128 bytes behind a word.
constexpr size_t kMaxFileBytes = kDigestBytes + (SK_DNS_BUDGET_ZONES + 2) * 32 + 512;

std::string KeysPath(const std::string& state_dir) { return absl::StrCat(state_dir, "/hash_keys"); }

Status MakeDirectory(const std::string& path) {
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("make the directory ", path));
}

}  // namespace

StatusOr<std::optional<sk_hash_keys>> ReadHashKeys(const std::string& state_dir) {
    const StatusOr<std::string> bytes = ReadFile(KeysPath(state_dir), sizeof(sk_hash_keys));
    if (absl::IsNotFound(bytes.status())) return std::nullopt;
    SK_RETURN_IF_ERROR(bytes.status());
    sk_hash_keys keys{};
    if (bytes->size() != sizeof(keys)) {
        return absl::DataLossError(absl::StrCat(KeysPath(state_dir), ": ", bytes->size(), " bytes, not ", sizeof(keys),
                                                ": remove ", state_dir, " to begin anew"));
    }
    std::memcpy(&keys, bytes->data(), sizeof(keys));
    return keys;
}

Status KeepHashKeys(const std::string& state_dir, const sk_hash_keys& keys) {
    SK_RETURN_IF_ERROR(MakeDirectory(state_dir));
    if (access(KeysPath(state_dir).c_str(), F_OK) == 0) return absl::OkStatus();
    return ReplaceFile(KeysPath(state_dir), {reinterpret_cast<const char*>(&keys), sizeof(keys)}, 0600, Synced::kYes);
}

StatusOr<DnsLedger> DnsLedger::Open(Options options) {
    DnsLedger ledger(std::move(options));
    SK_RETURN_IF_ERROR(MakeDirectory(ledger.options_.dir));
    std::vector<std::pair<fs::path, fs::file_time_type>> files;
    fs::file_time_type latest = fs::file_time_type::min();
    std::error_code error;
    for (fs::directory_iterator at(ledger.options_.dir, error), end; !error && at != end; at.increment(error)) {
        std::error_code gone;
        const fs::file_time_type written = fs::last_write_time(at->path(), gone);
        files.emplace_back(at->path(), gone ? fs::file_time_type::max() : written);
        if (!gone) latest = std::max(latest, written);
    }
    if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", ledger.options_.dir));
    // By the latest write where that is earlier than now: a clock that jumped ahead makes all look old, and would give every session a
    // fresh budget.
    const auto oldest = std::min(fs::file_time_type::clock::now(), latest) - std::chrono::hours(24 * ledger.options_.keep_days);
    for (const auto& [path, written] : files) {
        std::error_code stays;
        if (written < oldest && fs::remove(path, stays)) continue;
        ++ledger.count_;
    }
    return ledger;
}

std::string DnsLedger::PathOf(const std::string& id) const { return absl::StrCat(options_.dir, "/", Sha256Hex(id)); }

StatusOr<std::optional<sandbox::v1::StoredDnsBudget>> DnsLedger::Read(const std::string& id) const {
    const std::string path = PathOf(id);
    const StatusOr<std::string> bytes = ReadFile(path, kMaxFileBytes);
    if (absl::IsNotFound(bytes.status())) return std::nullopt;
    SK_RETURN_IF_ERROR(bytes.status());
    const auto whole = [&]() -> std::optional<sandbox::v1::StoredDnsBudget> {
        if (bytes->size() < kDigestBytes) return std::nullopt;
        const absl::string_view body = absl::string_view(*bytes).substr(kDigestBytes);
        const auto digest = Sha256(body);
        sandbox::v1::StoredDnsBudget budget;
        if (std::memcmp(digest.data(), bytes->data(), kDigestBytes) != 0 || !budget.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
            budget.id() != id || budget.zones_size() > SK_DNS_BUDGET_ZONES + 2)
            return std::nullopt;
        return budget;
    }();
    if (whole) return whole;
    return absl::DataLossError(absl::StrCat(path, ": not as it was written: what ", id, " has spent of its DNS budget is unknown; "
                                            "remove the file to begin a new one"));
}

Status DnsLedger::Write(const sandbox::v1::StoredDnsBudget& budget) {
    const std::string path = PathOf(budget.id()), body = budget.SerializeAsString();
    const bool fresh = access(path.c_str(), F_OK) != 0;
    if (fresh && count_ >= options_.max_budgets) {
        return absl::ResourceExhaustedError(absl::StrCat(options_.dir, " has the DNS budgets of ", count_, " sessions of the last ",
                                                         options_.keep_days, " days: remove those that are over"));
    }
    const auto digest = Sha256(body);
    SK_RETURN_IF_ERROR(ReplaceFile(path, absl::StrCat(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()), body),
                                   0600, Synced::kYes));
    count_ += fresh ? 1 : 0;
    return absl::OkStatus();
}

}  // namespace stockade::cmd
