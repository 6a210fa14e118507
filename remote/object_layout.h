// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "remote/signing_keys.h"

// The bytes of an object: its header, manifest and archive (entry_object.h has the layout). The functions are
// thread-safe and throw only std::bad_alloc.
namespace cacheshim::remote {

// The texts refer to the bytes of the object, which must stay valid.
struct ObjectParts {
  KeyId signer{};
  Signature signature{};
  std::string_view manifest;
  std::string_view archive;
};

// Returns nothing if the bytes have no valid header. Verifies neither the signature nor the archive's digest.
std::optional<ObjectParts> split_object(std::string_view object);

// Returns Manifest::archive_digest for these bytes.
std::string digest_of_archive(std::string_view archive);

// Appends the bytes of a key's id, a signature or a digest to the text.
template <std::size_t size>
void append_bytes(std::string& text, const std::array<unsigned char, size>& bytes) {
  text.append(bytes.begin(), bytes.end());
}

}  // namespace cacheshim::remote
