// SPDX-License-Identifier: Apache-2.0
// Fuzzes the readers of the remote tier's objects, packs and keys. The first byte of the input selects the reader. A
// fuzzer cannot forge signatures and digests. So for 'M', the input is a manifest, a newline and an archive. This
// program replaces DIGEST and SIZE in the manifest with the digest and the size of the archive, and signs the manifest.
#include <fcntl.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "remote/entry_object.h"
#include "remote/object_pack.h"
#include "remote/signing_keys.h"
#include "store/sys/json_text.h"
#include "store/sys/sys.h"
#include "tests/fuzz/target.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::fuzz {
namespace {

using namespace cacheshim::remote;

constexpr const char* kUnit = "triton/KEY";
constexpr ObjectLimits kLimits{.content_bytes = 65536, .files = 16, .depth = 8, .path_bytes = 64};

const SecretKey& secret_key() {
  static const SecretKey key = SecretKey::from_seed({});
  return key;
}

ExpectedEntry expected() {
  const auto is_part = [](const std::string& path) { return path == "triton/KEY.json"; };
  return {kUnit, 1, is_part};
}

std::variant<Manifest, ObjectRefusal> open(std::string_view object) {
  const PublicKey key = secret_key().public_key();
  return open_object(object, expected(), std::span(&key, 1), kLimits);
}

bool is_empty(int directory) {
  const auto entries = sys::list_dir(directory);
  return entries && entries->empty();
}

// The directory `target` and its only neighbor `beside`.
class Targets {
 public:
  Targets() { scratch_.write("beside", "beside"); }
  int target() const { return target_.get(); }
  // Empties `target`. Fails if its parent has changed.
  void clear() const {
    require(is_empty(target()) || clear_target());
    require(scratch_.read("beside") == "beside");
    const auto entries = sys::list_dir(top_.get());
    require(entries && entries->size() == 2);
  }

 private:
  bool clear_target() const {
    const auto entries = sys::list_dir(target());
    if (!entries) return false;
    for (const sys::DirEntry& entry : *entries)
      require(bool{sys::remove_tree(target(), entry.name)});
    return is_empty(target());
  }

  const Scratch scratch_;
  const UniqueFd top_ = scratch_.open_dir("");
  const UniqueFd target_ = scratch_.open_dir("target");
};

// Returns true if pack() may refuse an entry that open_object() accepts. The mode of a file may forbid reading the
// file, and a symlink of an entry of several files may lead to a file that does not exist.
bool may_refuse(const ObjectError& error, const Manifest& manifest) {
  if (error.code == EACCES) return true;
  return error.code == EINVAL &&
         std::any_of(manifest.files.begin(), manifest.files.end(),
                     [](const EntryFile& file) { return !file.link.empty(); });
}

// Packs the unpacked entry again. The archive may differ, because the fuzzer may have compressed it in another way.
void pack_again(const Manifest& manifest, int target) {
  std::vector<std::string> paths = manifest.directories;
  for (const EntryFile& file : manifest.files) paths.push_back(file.path);
  const auto object = pack({target, manifest.unit, paths}, manifest.facts, secret_key(), kLimits);
  if (const auto* error = std::get_if<ObjectError>(&object)) {
    require(may_refuse(*error, manifest));
    return;
  }
  auto again = open(std::get<std::string>(object));
  require(std::holds_alternative<Manifest>(again));
  Manifest& found = std::get<Manifest>(again);
  found.archive_size = manifest.archive_size;
  found.archive_digest = manifest.archive_digest;
  require(to_text(found) == to_text(manifest));
}

void read_object(std::string_view object) {
  static const Targets targets;
  const auto opened = open(object);
  if (const auto* refusal = std::get_if<ObjectRefusal>(&opened)) {
    touch(refusal->message);
    return;
  }
  const Manifest& manifest = std::get<Manifest>(opened);
  if (const auto error = unpack(object, manifest, targets.target())) {
    touch(error->message);
    require(is_empty(targets.target()));
  } else {
    pack_again(manifest, targets.target());
  }
  targets.clear();
}

void replace_word(std::string& text, std::string_view word, const std::string& value) {
  if (const std::size_t at = text.find(word); at != std::string::npos)
    text.replace(at, word.size(), value);
}

void read_signed(std::string_view text) {
  std::string manifest = take_until(text, '\n');
  std::string digest(crypto_generichash_BYTES, '\0');
  (void)::crypto_generichash(
      static_cast<unsigned char*>(static_cast<void*>(digest.data())), digest.size(),
      static_cast<const unsigned char*>(static_cast<const void*>(text.data())), text.size(),
      nullptr, 0);
  replace_word(manifest, "DIGEST", to_hex(digest));
  replace_word(manifest, "SIZE", std::to_string(text.size()));
  read_object(sign_object(manifest, text, secret_key()));
}

// A parsed key that is written and parsed again must be the same key.
void read_key(std::string_view line) {
  const auto key = parse_public_key(line);
  if (std::holds_alternative<KeyError>(key)) return;
  const auto again = parse_public_key(to_text(std::get<PublicKey>(key)));
  require(std::holds_alternative<PublicKey>(again));
  require(std::get<PublicKey>(again).bytes == std::get<PublicKey>(key).bytes);
  require(std::get<PublicKey>(again).comment == std::get<PublicKey>(key).comment);
}

// A pack that is written from the objects of a valid pack must have the same bytes.
void read_packed(std::string_view pack) {
  const auto objects = read_pack(pack);
  if (!objects) return;
  PackWriter writer;
  for (const PackedObject& packed : *objects) require(writer.add(packed.unit, packed.object));
  require(writer.bytes() == pack);
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  read_selected({{'O', read_object}, {'M', read_signed}, {'K', read_key}, {'P', read_packed}}, data,
                size);
  return 0;
}
