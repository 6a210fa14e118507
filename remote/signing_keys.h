// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The ed25519 keys that sign the objects of the remote tier (libsodium, "Public-key signatures").
//
//   secret key file   cacheshim-secret-key-1 BASE64             one line; mode 0600 or stricter
//   public key        cacheshim-public-key-1 BASE64 [COMMENT]   one line; a file may contain many
//
// BASE64 is the padded base64 (RFC 4648, section 4) of the 32 bytes of the seed or of the public key. A key of either
// kind identifies its scheme by the 1 in its first word. In a file of public keys, empty lines and lines that begin
// with '#' are ignored.
//
// Functions that use libsodium throw std::runtime_error if libsodium cannot start. No error text contains a part of a
// secret key file. All functions are thread-safe.
namespace cacheshim::remote {

struct KeyError {
  std::string message;  // one line: what, where, why
};

// The first 8 bytes of the BLAKE2b-256 digest (crypto_generichash) of the public key.
using KeyId = std::array<unsigned char, 8>;
using Signature = std::array<unsigned char, 64>;

struct PublicKey {
  std::array<unsigned char, 32> bytes{};
  std::string comment;  // "", or at most kMostCommentBytes of printable UTF-8

  KeyId id() const;
};

inline constexpr std::size_t kMostCommentBytes = 256;

// Move-only. The key is in memory that the kernel never writes to swap or to a core dump, as far as the limits of the
// process allow. The destructor wipes this memory (sodium_malloc(), sodium_free()).
class SecretKey {
 public:
  using Seed = std::array<unsigned char, 32>;
  // Returns a new random key.
  static SecretKey generate();
  // Returns the key of this seed. The caller wipes the seed.
  static SecretKey from_seed(const Seed& seed);

  PublicKey public_key(const std::string& comment = "") const;
  // Signs `domain`, a NUL byte and `message`. Each kind of message has its own domain, so that no signature is valid
  // for two kinds. Requires: `domain` contains no NUL byte.
  Signature sign(std::string_view domain, std::string_view message) const;

 private:
  friend std::optional<KeyError> write_secret_key(const std::string& path, const SecretKey& key);
  struct Free {
    void operator()(unsigned char* bytes) const;
  };
  SecretKey();

  std::unique_ptr<unsigned char, Free>
      bytes_;  // the seed and the public key, as libsodium keeps them
};

// Returns whether `signature` is valid: the owner of `key` has signed `domain` and `message` (SecretKey::sign()).
bool is_signed_by(const PublicKey& key, std::string_view domain, std::string_view message,
                  const Signature& signature);

// Returns why a file with these attributes must not contain secrets, for an error text; "" if it may contain them. A
// reason is that it is not a regular file, that neither root nor the user of this process owns it, or that its group or
// others may read, write or execute it.
std::string exposure_of_secret(const struct stat& st);

// Creates the secret key file `path`, which must not exist. If the file cannot be written completely, it is removed.
std::optional<KeyError> write_secret_key(const std::string& path, const SecretKey& key);
// Refuses a file for which exposure_of_secret() returns a reason. Follows symlinks.
std::variant<SecretKey, KeyError> read_secret_key(const std::string& path);

// Returns the line of the public key, without a newline.
std::string to_text(const PublicKey& key);
std::variant<PublicKey, KeyError> parse_public_key(std::string_view line);
// Returns the keys of `texts`. Each text is the line of a public key or the path of a file with such lines. Refuses a
// file that its group or others may write, a file of more than 1 MiB, and a file without a key. Follows symlinks.
std::variant<std::vector<PublicKey>, KeyError> read_public_keys(
    const std::vector<std::string>& texts);

}  // namespace cacheshim::remote
