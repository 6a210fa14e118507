// SPDX-License-Identifier: Apache-2.0
#include "remote/object_layout.h"

#include <sodium.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>

#include "remote/entry_object.h"
#include "store/sys/json_text.h"

namespace cacheshim::remote {
namespace {

constexpr std::string_view kObjectMagic = "CSHIMOB1";

}  // namespace

std::optional<ObjectParts> split_object(std::string_view object) {
  if (object.size() < kObjectHeaderBytes || !object.starts_with(kObjectMagic)) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= std::size_t{static_cast<unsigned char>(object[kObjectMagic.size() + i])} << (8 * i);
  }
  const std::string_view body = object.substr(kObjectHeaderBytes);
  if (length > kMostManifestBytes || length > body.size()) return std::nullopt;
  ObjectParts parts;
  const char* const signer = object.data() + kObjectMagic.size() + 4;
  std::memcpy(parts.signer.data(), signer, parts.signer.size());
  std::memcpy(parts.signature.data(), signer + parts.signer.size(), parts.signature.size());
  parts.manifest = body.substr(0, length);
  parts.archive = body.substr(length);
  return parts;
}

std::string digest_of_archive(std::string_view archive) {
  std::array<unsigned char, crypto_generichash_BYTES> digest;
  const void* bytes = archive.data();
  (void)::crypto_generichash(digest.data(), digest.size(), static_cast<const unsigned char*>(bytes),
                             archive.size(), nullptr, 0);  // fails only for an invalid length
  std::string text;
  append_bytes(text, digest);
  return to_hex(text);
}

std::uint64_t most_object_bytes(const ObjectLimits& limits) {
  return kObjectHeaderBytes + kMostManifestBytes + ::ZSTD_compressBound(limits.content_bytes);
}

std::string sign_object(std::string_view manifest, std::string_view archive, const SecretKey& key) {
  std::string object;
  object.reserve(kObjectHeaderBytes + manifest.size() + archive.size());
  object = kObjectMagic;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    object.push_back(static_cast<char>((manifest.size() >> shift) & 0xff));
  }
  append_bytes(object, key.public_key().id());
  append_bytes(object, key.sign(kObjectDomain, manifest));
  return object.append(manifest).append(archive);
}

}  // namespace cacheshim::remote
