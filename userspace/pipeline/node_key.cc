#include "userspace/pipeline/node_key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::pipeline {
namespace {

constexpr size_t kSeedDigits = 2 * crypto_sign_SEEDBYTES;

uint8_t* Bytes(std::string& text) { return reinterpret_cast<uint8_t*>(text.data()); }
const uint8_t* Bytes(absl::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

bool IsHex(absl::string_view text, size_t digits) {
    return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// O_EXCL: of two that start at once one makes the key and the other reads it.
Status Create(const std::string& path) {
    std::string seed(crypto_sign_SEEDBYTES, 0);
    randombytes_buf(seed.data(), seed.size());
    // Whole under another name first: a cut must not leave half a key.
    const std::string whole = absl::StrCat(path, ".", getpid(), ".new");
    SK_RETURN_IF_ERROR(ReplaceFile(whole, absl::StrCat(absl::BytesToHexString(seed), "\n"), 0600));
    const int linked = link(whole.c_str(), path.c_str());
    const int error = errno;
    (void)unlink(whole.c_str());  // the other name stays
    if (linked != 0 && error != EEXIST)
        return ErrnoStatus(error, absl::StrCat("keep the node key as ", path));
    return absl::OkStatus();
}

}  // namespace

StatusOr<NodeKey> NodeKey::LoadOrCreate(const std::string& path) {
    if (sodium_init() < 0) return absl::InternalError("libsodium cannot start: no randomness");
    struct stat st{};
    if (stat(path.c_str(), &st) != 0 && errno == ENOENT) SK_RETURN_IF_ERROR(Create(path));
    if (stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, absl::StrCat("read the node key ", path));
    if ((st.st_mode & 077) != 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("the node key ", path, " can be read by others: chmod 600"));
    }
    SK_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, 4096));
    const absl::string_view digits = absl::StripSuffix(content, "\n");
    if (!IsHex(digits, kSeedDigits)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the node key ", path, " is not ", kSeedDigits, " hexadecimal digits"));
    }
    const std::string seed = absl::HexStringToBytes(digits);
    NodeKey key;
    std::string public_bytes(crypto_sign_PUBLICKEYBYTES, 0);
    key.secret_.resize(crypto_sign_SECRETKEYBYTES);
    (void)crypto_sign_seed_keypair(Bytes(public_bytes), Bytes(key.secret_),
                                   Bytes(absl::string_view(seed)));  // cannot fail
    key.public_hex_ = absl::BytesToHexString(public_bytes);
    return key;
}

std::string NodeKey::Sign(absl::string_view text) const {
    std::string signature(crypto_sign_BYTES, 0);
    (void)crypto_sign_detached(Bytes(signature), nullptr, Bytes(text), text.size(),
                               Bytes(absl::string_view(secret_)));  // cannot fail
    return absl::BytesToHexString(signature);
}

bool NodeKey::Verify(absl::string_view public_hex, absl::string_view text, absl::string_view signature_hex) {
    if (sodium_init() < 0) return false;  // again is harmless
    if (!IsHex(public_hex, 2 * crypto_sign_PUBLICKEYBYTES) || !IsHex(signature_hex, 2 * crypto_sign_BYTES))
        return false;
    const std::string key = absl::HexStringToBytes(public_hex);
    const std::string signature = absl::HexStringToBytes(signature_hex);
    return crypto_sign_verify_detached(Bytes(absl::string_view(signature)), Bytes(text), text.size(),
                                       Bytes(absl::string_view(key))) == 0;
}

}  // namespace stockade::pipeline
