// The release. stockade and stockaded of one release belong together.
#pragma once

namespace stockade::cmd {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace stockade::cmd
