// What is kept of one sandbox: a folder, written while it runs, closed by a manifest of what is in it.
//
//   SK_ASSIGN_OR_RETURN(auto folder, EvidenceFolder::Create("/var/lib/stockade/evidence", "sbx_01J...", WallNow()));
//   folder->Put("policy.txt", text);  folder->Append("events.jsonl", line);
//   SK_ASSIGN_OR_RETURN(std::string digest, folder->Finish({}));    // SHA-256 of manifest.json
//
// Named `<UTC time>-<sandbox>`, 0700, its files 0600; what could hold secrets lies below raw/. A folder without a manifest is one whose
// writer was killed: CloseUnfinished gives it one that says so. A write that fails (a full disk) is remembered and told in the manifest;
// it never holds up the end of the sandbox. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/sha256.h"
#include "userspace/base/status.h"

namespace stockade::sandbox {

class EvidenceFolder {
  public:
    static StatusOr<std::unique_ptr<EvidenceFolder>> Create(const std::string& base, const std::string& sandbox_id, uint64_t wall_ns);
    // One that an earlier writer had begun: goes on behind what is there. kNotFound when there is none, or it is closed.
    static StatusOr<std::unique_ptr<EvidenceFolder>> Reopen(const std::string& base, const std::string& sandbox_id);

    // `name` is "events.jsonl" or "raw/argv.json": ours, never a sandbox's.
    void Put(const std::string& name, absl::string_view bytes) { Append(name, bytes); }
    void Append(const std::string& name, absl::string_view bytes);
    // Writes manifest.json, with `facts` (JSON values by key) beside the files, and returns its SHA-256; kDataLoss names the first write that
    // had failed.
    StatusOr<std::string> Finish(const std::map<std::string, std::string>& facts);

    const std::string& path() const { return path_; }

  private:
    struct File {
        Fd fd;
        Sha256Stream digest;
        uint64_t bytes = 0;
    };
    EvidenceFolder(std::string path, Fd dir) : path_(std::move(path)), dir_(std::move(dir)) {}
    StatusOr<File*> Open(const std::string& name);
    Status ReadBack(const std::string& prefix, const std::string& path);

    std::string path_;
    Fd dir_;
    std::map<std::string, File> files_;
    Status failed_;
    uint64_t lost_bytes_ = 0;
};

struct Retention {
    uint64_t max_bytes = 0;  // 0 = no bound
    uint64_t max_age_ns = 0;
};
struct Swept {
    uint64_t removed = 0;
    uint64_t folders = 0;  // that stay
    uint64_t bytes = 0;
    std::vector<std::string> failed;
};
// Removes closed folders that are too old, and the oldest until the rest is small enough. Only names that are ours are touched.
Swept SweepEvidence(const std::string& base, const Retention& retention, uint64_t wall_ns);
// Gives each folder without a manifest one that says that its writer was killed, but for those of `alive`. How many.
int CloseUnfinished(const std::string& base, const std::vector<std::string>& alive);

inline constexpr char kManifest[] = "manifest.json";

}  // namespace stockade::sandbox
