// Standard streams are open files that the caller shares with the sandbox: O_NONBLOCK, set inside,
// is set for the caller's shell too.
//
//   SharedFlags flags;            // as they are now
//   ... run ...  flags.Restore(); // before we write ourselves
#pragma once

namespace stockade::cmd {

class SharedFlags {
  public:
    SharedFlags();
    ~SharedFlags() { Restore(); }
    SharedFlags(const SharedFlags&) = delete;
    SharedFlags& operator=(const SharedFlags&) = delete;

    void Restore();

  private:
    int flags_[3];  // F_GETFL of 0, 1 and 2; -1 = not open
};

// True when both are one file, pipe or socket (not a terminal, whose lines nobody reads by program).
bool SameStream(int a, int b);

}  // namespace stockade::cmd
