// SPDX-License-Identifier: Apache-2.0
#include "remote/signing_keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "common/printable_text.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

static_assert(std::tuple_size_v<Signature> == crypto_sign_BYTES);
static_assert(sizeof PublicKey::bytes == crypto_sign_PUBLICKEYBYTES);
static_assert(std::tuple_size_v<SecretKey::Seed> == crypto_sign_SEEDBYTES);

constexpr std::string_view kSecretStem = "cacheshim-secret-key";
constexpr std::string_view kSecretWord = "cacheshim-secret-key-1 ";
constexpr std::string_view kPublicWord = "cacheshim-public-key-1 ";
constexpr int kBase64 = sodium_base64_VARIANT_ORIGINAL;
constexpr std::size_t kKeyTextBytes = 44;  // base64 of 32 bytes
constexpr std::size_t kMostKeyFileBytes = std::size_t{1} << 20;
constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;

// Initializes libsodium, as its other functions require.
void start_sodium() {
  static const bool is_started = ::sodium_init() >= 0;  // 1: already started
  if (!is_started) throw std::runtime_error("libsodium cannot start");
}

// Bytes that are wiped at the end of their scope.
template <class Byte, std::size_t size>
struct Wiped {
  std::array<Byte, size> bytes{};

  Wiped() = default;
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { ::sodium_memzero(bytes.data(), sizeof bytes); }
};
// More than the 68 bytes of a secret key file, so that read_secret_text() detects a longer file.
using SecretText = Wiped<char, 128>;

const unsigned char* bytes_of(std::string_view text) {
  return static_cast<const unsigned char*>(static_cast<const void*>(text.data()));
}

std::string signed_text(std::string_view domain, std::string_view message) {
  std::string text;
  text.reserve(domain.size() + 1 + message.size());
  text.append(domain).append(1, '\0').append(message);
  return text;
}

// Decodes `text` into `bytes`. Returns false if `text` is not the base64 of 32 bytes.
bool decode_key(std::string_view text, std::array<unsigned char, 32>& bytes) {
  std::size_t length = 0;
  return ::sodium_base642bin(bytes.data(), bytes.size(), text.data(), text.size(), nullptr, &length,
                             nullptr, kBase64) == 0 &&
         length == bytes.size();
}

std::string_view without_line_end(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// Reads the file into `text`, and returns the number of bytes. Does not use sys::read_all(), because nothing wipes the
// buffers of that function. Errors: EFBIG if the file does not fit.
Result<std::size_t> read_secret_text(int file, SecretText& text) {
  std::size_t length = 0;
  for (;;) {
    const ssize_t count = ::read(file, text.bytes.data() + length, text.bytes.size() - length);
    if (count == -1 && errno == EINTR) continue;
    if (count == -1) return Errno::last();
    if (count == 0) return length;
    length += static_cast<std::size_t>(count);
    if (length == text.bytes.size()) return Errno(EFBIG);
  }
}

// Returns the path for an error text. A user may by mistake pass the content of a secret key file instead of its path;
// no error text may contain that content.
std::string shown(const std::string& path) {
  return path.starts_with(kSecretStem) ? "(the text of a secret key)" : printable(path);
}

KeyError cannot_read(std::string_view kind, const std::string& path, std::string_view why) {
  return {fmt::format("cannot read the {} '{}': {}", kind, shown(path), why)};
}

KeyError cannot_read(std::string_view kind, const std::string& path, Errno error) {
  return cannot_read(kind, path, std::strerror(error.code()));
}

// Parses the lines of `text`, the content of the file `path`, and appends their keys to `keys`.
std::optional<KeyError> add_lines(std::string_view text, const std::string& path,
                                  std::vector<PublicKey>& keys) {
  const std::size_t before = keys.size();
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_line_end(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    auto key = parse_public_key(line);
    if (const auto* error = std::get_if<KeyError>(&key)) {
      return cannot_read("public keys", path, fmt::format("line {}: {}", number, error->message));
    }
    keys.push_back(std::get<PublicKey>(std::move(key)));
  }
  if (keys.size() > before) return std::nullopt;
  return cannot_read("public keys", path, "the file contains no key");
}

std::optional<KeyError> add_file(const std::string& path, std::vector<PublicKey>& keys) {
  constexpr std::string_view kKind = "public keys";
  // O_NONBLOCK: opening a FIFO must not block.
  const auto file = sys::open_path(path, O_RDONLY | O_NONBLOCK);
  if (!file) return cannot_read(kKind, path, file.error());
  const auto st = sys::stat_fd(file->get());
  if (!st) return cannot_read(kKind, path, st.error());
  if (!S_ISREG(st->st_mode)) return cannot_read(kKind, path, "it is not a regular file");
  if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return cannot_read(kKind, path, "its group or others may write to it");
  }
  const auto text = sys::read_all(file->get(), kMostKeyFileBytes);
  if (!text) return cannot_read(kKind, path, text.error());
  return add_lines(*text, path, keys);
}

}  // namespace

std::string exposure_of_secret(const struct stat& st) {
  if (!S_ISREG(st.st_mode)) return "it is not a regular file";
  if (st.st_uid != 0 && st.st_uid != sys::own_uid()) {
    return fmt::format("it belongs to the user {}", st.st_uid);
  }
  if ((st.st_mode & kOfOthers) == 0) return "";
  return fmt::format("its mode is {:04o}, and must be 0600 or stricter", st.st_mode & 07777);
}

KeyId PublicKey::id() const {
  start_sodium();
  std::array<unsigned char, crypto_generichash_BYTES> digest;
  (void)::crypto_generichash(digest.data(), digest.size(), bytes.data(), bytes.size(), nullptr,
                             0);  // fails only for an invalid length
  KeyId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

void SecretKey::Free::operator()(unsigned char* bytes) const { ::sodium_free(bytes); }

SecretKey::SecretKey() {
  start_sodium();
  bytes_.reset(static_cast<unsigned char*>(::sodium_malloc(crypto_sign_SECRETKEYBYTES)));
  if (!bytes_) throw std::bad_alloc();
}

SecretKey SecretKey::generate() {
  SecretKey key;
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> ignored;  // the secret key contains it
  (void)::crypto_sign_keypair(ignored.data(), key.bytes_.get());  // cannot fail
  return key;
}

SecretKey SecretKey::from_seed(const Seed& seed) {
  SecretKey key;
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> ignored;
  (void)::crypto_sign_seed_keypair(ignored.data(), key.bytes_.get(), seed.data());  // cannot fail
  return key;
}

PublicKey SecretKey::public_key(const std::string& comment) const {
  PublicKey key;
  key.comment = comment;
  (void)::crypto_sign_ed25519_sk_to_pk(key.bytes.data(), bytes_.get());  // cannot fail
  return key;
}

Signature SecretKey::sign(std::string_view domain, std::string_view message) const {
  const std::string text = signed_text(domain, message);
  Signature signature;
  (void)::crypto_sign_detached(signature.data(), nullptr, bytes_of(text), text.size(),
                               bytes_.get());  // cannot fail
  return signature;
}

bool is_signed_by(const PublicKey& key, std::string_view domain, std::string_view message,
                  const Signature& signature) {
  start_sodium();
  const std::string text = signed_text(domain, message);
  return ::crypto_sign_verify_detached(signature.data(), bytes_of(text), text.size(),
                                       key.bytes.data()) == 0;
}

std::optional<KeyError> write_secret_key(const std::string& path, const SecretKey& key) {
  Wiped<unsigned char, crypto_sign_SEEDBYTES> seed;
  SecretText text;
  (void)::crypto_sign_ed25519_sk_to_seed(seed.bytes.data(), key.bytes_.get());  // cannot fail
  char* const end = std::copy(kSecretWord.begin(), kSecretWord.end(), text.bytes.data());
  (void)::sodium_bin2base64(end, kKeyTextBytes + 1, seed.bytes.data(), seed.bytes.size(), kBase64);
  const std::size_t length = kSecretWord.size() + kKeyTextBytes;
  text.bytes[length] = '\n';
  const auto file = sys::open_path(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  Status written =
      file ? sys::write_all(file->get(), {text.bytes.data(), length + 1}) : file.error();
  if (written) written = sys::sync_file(file->get());
  if (written) return std::nullopt;
  if (file)
    (void)::unlink(path.c_str());  // if this fails, read_secret_key() refuses an incomplete file
  return KeyError{fmt::format("cannot write the secret key '{}': {}", shown(path),
                              std::strerror(written.error().code()))};
}

std::variant<SecretKey, KeyError> read_secret_key(const std::string& path) {
  constexpr std::string_view kKind = "secret key";
  start_sodium();
  const auto file = sys::open_path(path, O_RDONLY | O_NONBLOCK);
  if (!file) return cannot_read(kKind, path, file.error());
  const auto st = sys::stat_fd(file->get());
  if (!st) return cannot_read(kKind, path, st.error());
  if (const std::string why = exposure_of_secret(*st); !why.empty())
    return cannot_read(kKind, path, why);
  SecretText text;
  const auto length = read_secret_text(file->get(), text);
  if (!length) return cannot_read(kKind, path, length.error());
  const std::string_view line = without_line_end({text.bytes.data(), *length});
  Wiped<unsigned char, crypto_sign_SEEDBYTES> seed;
  if (!line.starts_with(kSecretWord) || !decode_key(line.substr(kSecretWord.size()), seed.bytes)) {
    return cannot_read(kKind, path, "the file is not 'cacheshim-secret-key-1 BASE64'");
  }
  return SecretKey::from_seed(seed.bytes);
}

std::string to_text(const PublicKey& key) {
  std::array<char, kKeyTextBytes + 1> base64;
  (void)::sodium_bin2base64(base64.data(), base64.size(), key.bytes.data(), key.bytes.size(),
                            kBase64);
  std::string text(kPublicWord);
  text += base64.data();
  if (!key.comment.empty()) text += " " + key.comment;
  return text;
}

// Every public key that libsodium makes is a valid point. Other bytes are a typing error, or a weak key.
std::variant<PublicKey, KeyError> parse_public_key(std::string_view line) {
  start_sodium();
  if (!line.starts_with(kPublicWord)) {
    return KeyError{"the key does not begin with 'cacheshim-public-key-1 '"};
  }
  line.remove_prefix(kPublicWord.size());
  const std::string_view base64 = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(base64.size() + 1, line.size()));
  PublicKey key;
  if (!decode_key(base64, key.bytes)) return KeyError{"the key is not the base64 of 32 bytes"};
  if (::crypto_core_ed25519_is_valid_point(key.bytes.data()) != 1) {
    return KeyError{"the key is not a valid ed25519 key"};
  }
  if (line.size() > kMostCommentBytes) return KeyError{"the comment is too long"};
  if (printable(line) != line) return KeyError{"the comment has a character that is not printable"};
  key.comment = line;
  return key;
}

std::variant<std::vector<PublicKey>, KeyError> read_public_keys(
    const std::vector<std::string>& texts) {
  std::vector<PublicKey> keys;
  for (const std::string& text : texts) {
    if (!text.starts_with(kPublicWord)) {
      if (auto error = add_file(text, keys)) return *std::move(error);
      continue;
    }
    auto key = parse_public_key(text);
    if (auto* error = std::get_if<KeyError>(&key)) return std::move(*error);
    keys.push_back(std::get<PublicKey>(std::move(key)));
  }
  return keys;
}

}  // namespace cacheshim::remote
