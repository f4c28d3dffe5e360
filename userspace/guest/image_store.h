// The images that guests are made of, kept by their content outside of the tree: blobs/<sha256>, and for what was expensive
// to make made/<key>, which says which blob came of which input.
//
//   SK_ASSIGN_OR_RETURN(ImageStore store, ImageStore::Create("/var/cache/stockade/vm"));
//   SK_ASSIGN_OR_RETURN(Image kernel, store.Kernel("/boot/vmlinuz-6.12"));
//   SK_ASSIGN_OR_RETURN(Fd fd, store.Open(kernel));     // checked: one flipped byte is refused
//
// Root alone can write there, and QEMU's user can read. Threads and processes: any number; a blob appears by one rename.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::guest {

struct Image {
    std::string sha256;  // of its bytes: goes into the events of a run
    bool was_there = false;
};

class ImageStore {
  public:
    // Makes the directory, mode 0755; its parent is there.
    static StatusOr<ImageStore> Create(const std::string& directory);

    // The ELF kernel of a bzImage.
    StatusOr<Image> Kernel(const std::string& bzimage_path);
    // `init` as /init, and of the kernel's modules those that a guest needs. The same bytes each time.
    StatusOr<Image> Initramfs(const std::string& init_path, const std::string& modules_dir);
    // A squashfs (lz4) of a directory: everything owned by root, times of its own left out, and with the places that a root
    // has to have. The key is of names, modes, links and bytes, so the whole tree is read each time.
    StatusOr<Image> Root(const std::string& directory);
    // The same without the places: what a guest sees as /in.
    StatusOr<Image> Input(const std::string& directory);

    // Reads all of it once. kDataLoss when its bytes are not what its name says.
    StatusOr<Fd> Open(const Image& image) const;
    std::string PathOf(const Image& image) const;

  private:
    explicit ImageStore(std::string directory) : directory_(std::move(directory)) {}
    StatusOr<Image> Put(absl::string_view bytes) const;
    StatusOr<Image> PutFile(const std::string& path) const;
    StatusOr<Image> Made(const std::string& key, const std::function<StatusOr<Image>()>& make) const;
    StatusOr<Image> Squash(const std::string& directory, const std::vector<std::string>& places) const;

    std::string directory_;
};

// Kernel modules that a guest needs where they are not built in.
const std::vector<std::string>& GuestModules();

// Hex SHA-256 over a tree: paths in order, types, modes, link targets, bytes. kInvalidArgument for devices and sockets.
StatusOr<std::string> HashTree(const std::string& directory);

}  // namespace stockade::guest
