// The release. stockade and stockaded of one release belong together.
#pragma once

namespace stockade::cmd {

// In a source of its own, so that a test can link an agent of another release.
extern const char kVersion[];

}  // namespace stockade::cmd
