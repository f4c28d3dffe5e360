#include "userspace/guest/image_store.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/base/sha256.h"
#include "userspace/guest/cpio.h"
#include "userspace/guest/kernel_image.h"

namespace stockade::guest {
namespace {

// Part of each key: what is made otherwise is made anew.
constexpr const char* kMakerVersion = "1";
constexpr size_t kMaxKernelBytes = 256 << 20;
constexpr size_t kMaxInitBytes = 64 << 20;
// Where the guest's init mounts something (init_system.cc).
const char* const kPlaces[] = {"proc", "dev", "tmp", "out", "in"};

// The hash of a file without a copy of it.
StatusOr<std::string> HashFile(const Fd& fd) {
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat an image");
    if (st.st_size == 0) return Sha256Hex("");
    const auto size = static_cast<size_t>(st.st_size);
    void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at == MAP_FAILED) return ErrnoStatus(errno, "map an image");
    std::string hash = Sha256Hex(absl::string_view(static_cast<const char*>(at), size));
    (void)munmap(at, size);  // cannot fail for what was mapped
    return hash;
}

Status RunTool(const std::vector<std::string>& command, const std::string& errors_path) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, errors_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char* env[] = {path, nullptr};
    pid_t pid = -1;
    const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), env);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return ErrnoStatus(error, absl::StrCat("start ", command[0]));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    auto errors = ReadFile(errors_path, 1 << 20);
    (void)unlink(errors_path.c_str());  // in a directory of our own
    if (status == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(command[0], " failed: ", errors.ok() ? *errors : ""));
}

}  // namespace

const std::vector<std::string>& GuestModules() {
    static const auto* modules =
        new std::vector<std::string>{"virtio_pci", "virtio_mmio", "virtio_console", "virtio_blk", "squashfs"};
    return *modules;
}

StatusOr<ImageStore> ImageStore::Create(const std::string& directory) {
    for (const char* below : {"", "/blobs", "/made"}) {
        const std::string path = absl::StrCat(directory, below);
        if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
            return ErrnoStatus(errno, absl::StrCat("make ", path));
    }
    return ImageStore(directory);
}

std::string ImageStore::PathOf(const Image& image) const {
    return absl::StrCat(directory_, "/blobs/", image.sha256);
}

StatusOr<Image> ImageStore::Put(absl::string_view bytes) const {
    Image image{.sha256 = Sha256Hex(bytes)};
    const std::string path = PathOf(image);
    if (access(path.c_str(), F_OK) == 0) {
        image.was_there = true;
        return image;
    }
    SK_RETURN_IF_ERROR(ReplaceFile(path, bytes, 0444, Synced::kYes));
    return image;
}

StatusOr<Image> ImageStore::PutFile(const std::string& path) const {
    SK_ASSIGN_OR_RETURN(const Fd fd, Fd::Open(path, O_RDONLY));
    SK_ASSIGN_OR_RETURN(std::string sha256, HashFile(fd));
    Image image{.sha256 = std::move(sha256)};
    if (fchmod(fd.get(), 0444) != 0 || fsync(fd.get()) != 0) return ErrnoStatus(errno, "keep an image");
    if (rename(path.c_str(), PathOf(image).c_str()) != 0) return ErrnoStatus(errno, "name an image");
    return image;
}

StatusOr<Image> ImageStore::Made(const std::string& key, const std::function<StatusOr<Image>()>& make) const {
    const std::string note = absl::StrCat(directory_, "/made/", key);
    if (auto known = ReadFile(note, 100); known.ok()) {
        Image image{.sha256 = std::string(absl::StripAsciiWhitespace(*known)), .was_there = true};
        // A note without its blob: somebody made room.
        if (image.sha256.size() == 64 && access(PathOf(image).c_str(), F_OK) == 0) return image;
    }
    SK_ASSIGN_OR_RETURN(Image image, make());
    SK_RETURN_IF_ERROR(ReplaceFile(note, absl::StrCat(image.sha256, "\n"), 0444));
    image.was_there = false;
    return image;
}

StatusOr<Image> ImageStore::Kernel(const std::string& bzimage_path) {
    SK_ASSIGN_OR_RETURN(const std::string bzimage, ReadFile(bzimage_path, kMaxKernelBytes));
    return Made(absl::StrCat("kernel-", kMakerVersion, "-", Sha256Hex(bzimage)), [&]() -> StatusOr<Image> {
        auto vmlinux = ExtractVmlinux(bzimage);
        if (!vmlinux.ok()) return Annotate(vmlinux.status(), bzimage_path);
        return Put(*vmlinux);
    });
}

StatusOr<Image> ImageStore::Initramfs(const std::string& init_path, const std::string& modules_dir) {
    SK_ASSIGN_OR_RETURN(const std::string init, ReadFile(init_path, kMaxInitBytes));
    SK_ASSIGN_OR_RETURN(const auto modules, CollectModules(modules_dir, GuestModules()));
    CpioWriter cpio;
    cpio.AddDirectory("dev", 0755);
    // Init's standard streams, before it has mounted anything.
    cpio.AddCharDevice("dev/console", 0600, 5, 1);
    cpio.AddDirectory("modules", 0755);
    for (size_t i = 0; i < modules.size(); ++i) {
        // Two digits: init loads them in the order of their names.
        cpio.AddFile(absl::StrCat("modules/", i / 10, i % 10, "-", modules[i].first), 0444,
                     modules[i].second);
    }
    cpio.AddFile("init", 0755, init);
    return Put(cpio.Finish());
}

StatusOr<Image> ImageStore::Squash(const std::string& directory,
                                   const std::vector<std::string>& places) const {
    SK_ASSIGN_OR_RETURN(const std::string tree, HashTree(directory));
    std::string key = absl::StrCat("squashfs-", kMakerVersion, "-", tree);
    std::vector<std::string> command = {
        "mksquashfs",   directory,    "",          "-comp",       "lz4",        "-noappend",
        "-no-progress", "-no-xattrs", "-all-root", "-no-exports", "-mkfs-time", "0",
        "-all-time",    "0"};
    for (const std::string& place : places) {
        struct stat st;
        if (lstat(absl::StrCat(directory, "/", place).c_str(), &st) == 0) {
            if (!S_ISDIR(st.st_mode))
                return absl::InvalidArgumentError(
                    absl::StrCat(directory, "/", place, " is to be a directory"));
            continue;
        }
        command.insert(command.end(), {"-p", absl::StrCat(place, " d 755 0 0")});
        absl::StrAppend(&key, "-", place);
    }
    return Made(key, [&]() -> StatusOr<Image> {
        const std::string fresh = absl::StrCat(directory_, "/.fresh.", getpid(), ".", tree.substr(0, 16));
        command[2] = fresh;
        Status status = RunTool(command, fresh + ".log");
        auto image = status.ok() ? PutFile(fresh) : StatusOr<Image>(status);
        (void)unlink(fresh.c_str());  // where it was not renamed
        return image;
    });
}

StatusOr<Image> ImageStore::Root(const std::string& directory) {
    return Squash(directory, std::vector<std::string>(std::begin(kPlaces), std::end(kPlaces)));
}

StatusOr<Image> ImageStore::Input(const std::string& directory) { return Squash(directory, {}); }

StatusOr<Fd> ImageStore::Open(const Image& image) const {
    SK_ASSIGN_OR_RETURN(Fd fd, Fd::Open(PathOf(image), O_RDONLY | O_NOFOLLOW));
    SK_ASSIGN_OR_RETURN(const std::string sha256, HashFile(fd));
    if (sha256 != image.sha256) {
        return absl::DataLossError(absl::StrCat(
            "image ", PathOf(image), " has other bytes than its name says: remove it, and it is made anew"));
    }
    return fd;
}

}  // namespace stockade::guest
