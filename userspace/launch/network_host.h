// What egress changes on the host besides the veth: nftables and forwarding.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::launch {

// Feeds the script to nft(8). All or nothing.
Status RunNft(const std::string& script);
// Settings of the veth's host end: forwards, no IPv6, no redirects.
Status SetUpHostLink(const std::string& link);
// Numbers of the slot files in the directory.
std::vector<int> SlotFiles(const std::string& dir);

// Answers come in by the uplink, so it has to forward as well. Where it did not, it is turned on,
// written down in `dir`, and guarded: nothing new may enter by it, only answers. The last sandbox
// with egress turns it off again.
Status StartForwarding(const std::string& dir, const std::string& link);
// `leaving`: the slot that goes, which no longer counts.
Status StopForwarding(const std::string& dir, int leaving);

}  // namespace stockade::launch
