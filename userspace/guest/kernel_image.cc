#include "userspace/guest/kernel_image.h"

#include <elf.h>
#include <lzma.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/fd.h"

namespace stockade::guest {
namespace {

// SOURCE: Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header"
constexpr size_t kSetupSectors = 0x1f1, kMagic = 0x202, kVersion = 0x206, kPayloadOffset = 0x248,
                 kPayloadLength = 0x24c;
constexpr size_t kHeaderEnd = 0x250;
constexpr uint32_t kFirstVersionWithPayload = 0x0208;
// Debian's vmlinux has 40 to 70 MB. What says that it is more is no kernel of a guest.
constexpr size_t kMaxVmlinuxBytes = 512 << 20;
constexpr size_t kMaxModuleBytes = 64 << 20;
constexpr size_t kMaxListBytes = 16 << 20;

uint32_t Load(absl::string_view bytes, size_t at, size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
        value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
    return value;
}

StatusOr<std::string> UnpackZstd(absl::string_view packed) {
    std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    std::string out, chunk(ZSTD_DStreamOutSize(), '\0');
    while (true) {
        ZSTD_outBuffer room{chunk.data(), chunk.size(), 0};
        const size_t left = ZSTD_decompressStream(stream.get(), &room, &in);
        if (ZSTD_isError(left) != 0)
            return absl::InvalidArgumentError(absl::StrCat("zstd: ", ZSTD_getErrorName(left)));
        out.append(chunk, 0, room.pos);
        // 0: the frame is whole. What follows it is the kernel's own note of the size.
        if (left == 0) return out;
        if (out.size() > kMaxVmlinuxBytes) return absl::ResourceExhaustedError("a kernel of too many bytes");
        if (in.pos == in.size && room.pos == 0) return absl::InvalidArgumentError("zstd: it ends midway");
    }
}

StatusOr<std::string> UnpackXz(absl::string_view packed) {
    std::string out(std::max<size_t>(packed.size() * 4, 1 << 16), '\0');
    while (out.size() <= kMaxModuleBytes) {
        uint64_t memory = 256 << 20;
        size_t in_at = 0, out_at = 0;
        const lzma_ret code = lzma_stream_buffer_decode(
            &memory, 0, nullptr, reinterpret_cast<const uint8_t*>(packed.data()), &in_at, packed.size(),
            reinterpret_cast<uint8_t*>(out.data()), &out_at, out.size());
        if (code == LZMA_OK) {
            out.resize(out_at);
            return out;
        }
        // The room was too small. What is cut off has another error.
        if (code != LZMA_BUF_ERROR)
            return absl::InvalidArgumentError(absl::StrCat("xz: error ", static_cast<int>(code)));
        out.resize(out.size() * 4);
    }
    return absl::ResourceExhaustedError("a module of too many bytes");
}

// "kernel/fs/squashfs/squashfs.ko.xz" -> "squashfs"; names with - and _ are the same.
std::string ModuleName(absl::string_view path) {
    absl::string_view name = path.substr(path.rfind('/') + 1);
    return absl::StrReplaceAll(name.substr(0, name.find(".ko")), {{"-", "_"}});
}

struct Module {
    std::string path;
    std::vector<std::string> needs;  // paths, nearest first
};

std::map<std::string, Module> ParseModulesDep(absl::string_view text) {
    std::map<std::string, Module> table;
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        const std::pair<absl::string_view, absl::string_view> halves =
            absl::StrSplit(line, absl::MaxSplits(':', 1));
        table[ModuleName(halves.first)] =
            Module{.path = std::string(halves.first),
                   .needs = absl::StrSplit(halves.second, ' ', absl::SkipEmpty())};
    }
    return table;
}

StatusOr<std::string> ReadModule(const std::string& path) {
    SK_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxModuleBytes));
    if (!absl::EndsWith(path, ".xz")) return bytes;
    auto unpacked = UnpackXz(bytes);
    return unpacked.ok() ? unpacked : Annotate(unpacked.status(), path);
}

}  // namespace

StatusOr<std::string> ExtractVmlinux(absl::string_view bzimage) {
    if (bzimage.size() < kHeaderEnd || bzimage.substr(kMagic, 4) != "HdrS" ||
        Load(bzimage, kVersion, 2) < kFirstVersionWithPayload) {
        return absl::InvalidArgumentError("this is no bzImage");
    }
    const size_t sectors = Load(bzimage, kSetupSectors, 1);
    // 0 stands for 4, since the first boot loaders.
    const size_t begin = ((sectors == 0 ? 4 : sectors) + 1) * 512 + Load(bzimage, kPayloadOffset, 4);
    const size_t length = Load(bzimage, kPayloadLength, 4);
    if (begin > bzimage.size() || length > bzimage.size() - begin)
        return absl::InvalidArgumentError("a bzImage that is cut off");
    const absl::string_view payload = bzimage.substr(begin, length);
    if (!absl::StartsWith(payload, "\x28\xb5\x2f\xfd")) {
        return absl::UnimplementedError("the kernel in this bzImage is packed otherwise than by zstd");
    }
    SK_ASSIGN_OR_RETURN(std::string vmlinux, UnpackZstd(payload));
    if (vmlinux.size() < sizeof(Elf64_Ehdr) || vmlinux.compare(0, SELFMAG, ELFMAG) != 0 ||
        vmlinux[EI_CLASS] != ELFCLASS64) {
        return absl::InvalidArgumentError("what this bzImage carries is no ELF kernel");
    }
    return vmlinux;
}

StatusOr<std::vector<std::pair<std::string, std::string>>> CollectModules(
    const std::string& release_dir, const std::vector<std::string>& names) {
    SK_ASSIGN_OR_RETURN(const std::string dep,
                        ReadFile(absl::StrCat(release_dir, "/modules.dep"), kMaxListBytes));
    SK_ASSIGN_OR_RETURN(const std::string builtin,
                        ReadFile(absl::StrCat(release_dir, "/modules.builtin"), kMaxListBytes));
    const std::map<std::string, Module> table = ParseModulesDep(dep);
    std::vector<std::string> paths;
    for (const std::string& name : names) {
        const auto found = table.find(ModuleName(name));
        if (found == table.end()) {
            bool has = false;
            for (absl::string_view line : absl::StrSplit(builtin, '\n'))
                has |= ModuleName(line) == ModuleName(name);
            if (!has) return absl::NotFoundError(absl::StrCat("the kernel has no module ", name));
            continue;
        }
        paths.insert(paths.end(), found->second.needs.rbegin(), found->second.needs.rend());
        paths.push_back(found->second.path);
    }
    std::vector<std::pair<std::string, std::string>> modules;
    for (const std::string& path : paths) {
        const std::string file = absl::StrCat(ModuleName(path), ".ko");
        const bool there =
            std::any_of(modules.begin(), modules.end(), [&](const auto& row) { return row.first == file; });
        if (there) continue;
        SK_ASSIGN_OR_RETURN(std::string bytes, ReadModule(absl::StrCat(release_dir, "/", path)));
        modules.emplace_back(file, std::move(bytes));
    }
    return modules;
}

}  // namespace stockade::guest
