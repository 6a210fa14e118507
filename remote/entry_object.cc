// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "remote/manifest_rules.h"
#include "remote/manifest_text.h"
#include "remote/object_layout.h"
#include "store/sys/json_text.h"

namespace cacheshim::remote {

std::variant<Manifest, ObjectRefusal> open_object(std::string_view object,
                                                  const ExpectedEntry& expected,
                                                  std::span<const PublicKey> allowed,
                                                  const ObjectLimits& limits) {
  const auto parts = split_object(object);
  if (!parts) {
    return ObjectRefusal{Refusal::kCorrupt,
                         "it is not an object of the remote tier, or is cut off"};
  }
  const auto has_signed = [&](const PublicKey& key) {
    return key.id() == parts->signer &&
           is_signed_by(key, kObjectDomain, parts->manifest, parts->signature);
  };
  if (std::none_of(allowed.begin(), allowed.end(), has_signed)) {
    std::string signer;
    append_bytes(signer, parts->signer);
    return ObjectRefusal{
        Refusal::kUntrusted,
        fmt::format("no allowed key has signed it; it names the key {}", to_hex(signer))};
  }
  auto parsed = parse_manifest(parts->manifest);
  if (std::holds_alternative<ObjectRefusal>(parsed)) return parsed;
  const Manifest& manifest = std::get<Manifest>(parsed);
  if (manifest.unit != expected.unit) {
    return ObjectRefusal{Refusal::kStale,
                         fmt::format("it is of the entry {}", in_quotes(manifest.unit))};
  }
  if (manifest.facts.generation != expected.generation) {
    return ObjectRefusal{Refusal::kStale,
                         fmt::format("it is of the generation {}", manifest.facts.generation)};
  }
  const auto is_part = [&](const std::string& path) {
    return is_at_or_below(path, expected.unit) || (expected.is_part && expected.is_part(path));
  };
  if (auto problem = problem_of(manifest, is_part, limits)) return *std::move(problem);
  if (manifest.archive_size != parts->archive.size() ||
      manifest.archive_digest != digest_of_archive(parts->archive)) {
    return ObjectRefusal{Refusal::kCorrupt, "its archive has changed since it was signed"};
  }
  return parsed;
}

}  // namespace cacheshim::remote
