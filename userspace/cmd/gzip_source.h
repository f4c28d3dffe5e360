// Captures and logs from files, gzipped or not; "-" is standard input.
#pragma once

#include <zlib.h>

#include <memory>
#include <string>

#include "userspace/dns/byte_source.h"

namespace stockade::cmd {

// Plain and gzip alike: zlib passes on what is not compressed.
class GzipSource : public dns::ByteSource {
  public:
    static StatusOr<std::unique_ptr<GzipSource>> Open(const std::string& path);
    ~GzipSource() override;
    GzipSource(const GzipSource&) = delete;
    GzipSource& operator=(const GzipSource&) = delete;

    StatusOr<size_t> Read(char* out, size_t want) override;

  private:
    explicit GzipSource(gzFile file) : file_(file) {}
    gzFile file_;
};

}  // namespace stockade::cmd
