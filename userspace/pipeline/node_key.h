// The node's Ed25519 key, which signs the end of each sandbox's chain of events.
//
//   SK_ASSIGN_OR_RETURN(NodeKey key, NodeKey::LoadOrCreate("/var/lib/stockade/node.key"));
//   std::string signature = key.Sign(text);
//   NodeKey::Verify(key.public_hex(), text, signature)
//
// Who has root on the node can sign what he likes: the signature holds against whoever changes what
// has left the node. All texts are lower-case hexadecimal.
#pragma once

#include <string>

#include "userspace/base/status.h"

namespace stockade::pipeline {

class NodeKey {
  public:
    // Reads the secret seed (64 digits and a newline), or makes one and keeps it with mode 0600.
    // kInvalidArgument for another content; kFailedPrecondition for a file that others may read.
    static StatusOr<NodeKey> LoadOrCreate(const std::string& path);

    const std::string& public_hex() const { return public_hex_; }
    std::string Sign(absl::string_view text) const;
    static bool Verify(absl::string_view public_hex, absl::string_view text, absl::string_view signature_hex);

  private:
    NodeKey() = default;

    std::string secret_;  // libsodium's form: seed and public key
    std::string public_hex_;
};

}  // namespace stockade::pipeline
