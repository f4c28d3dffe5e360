// For tests: a private mount namespace with a file system of the test's own, gone with the process.
#pragma once

#include <string>
#include <unordered_set>

#include "userspace/base/fd.h"

namespace stockade::live {

// Makes the whole process private to its own mount namespace, once; mounts made afterwards are its alone.
Status OwnMounts();

// A tmpfs on a fresh directory. Paths below it are made on demand and kept.
class Tree {
  public:
    static StatusOr<Tree> Create(const std::string& name);
    ~Tree();
    Tree(Tree&& other) noexcept { *this = std::move(other); }
    Tree& operator=(Tree&& other) noexcept;

    // O_PATH descriptor of "/a/b/c" below the tree; every component is a directory.
    StatusOr<Fd> MakeDir(const std::string& path);
    // The same with a regular file at the end.
    StatusOr<Fd> MakeFile(const std::string& path);
    StatusOr<Fd> Open(const std::string& path, int flags) const;
    std::string At(const std::string& path) const { return dir_ + path; }
    int root() const { return root_.get(); }
    // Removes everything that MakeDir and MakeFile left.
    Status Clear();

  private:
    Tree() = default;
    Status Parents(const std::string& path);

    std::string dir_;
    Fd root_;
    std::unordered_set<std::string> made_;
};

}  // namespace stockade::live
