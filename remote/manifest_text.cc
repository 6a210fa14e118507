// SPDX-License-Identifier: Apache-2.0
#include "remote/manifest_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "store/sys/json_text.h"

namespace cacheshim::remote {
namespace {

using Json = nlohmann::json;  // sorts the keys of an object

constexpr std::uint64_t kFormat = 1;
constexpr int kManifestDepth = 3;  // an object in an array in an object

Json to_json(const EntryFile& file) {
  if (!file.link.empty()) return {{"link", file.link}, {"path", file.path}};
  return {{"mode", file.mode}, {"path", file.path}, {"size", file.size}, {"xxh3", file.digest}};
}

// The next functions throw nlohmann::json::exception if the member is missing or has another type.
std::uint64_t integer_in(const Json& object, const char* key) {
  return object.at(key).get_ref<const Json::number_unsigned_t&>();
}

std::string text_in(const Json& object, const char* key) {
  return object.at(key).get_ref<const std::string&>();
}

EntryFile file_in(const Json& json) {
  EntryFile file;
  file.path = text_in(json, "path");
  if (json.contains("link")) {
    file.link = text_in(json, "link");
    return file;
  }
  file.size = integer_in(json, "size");
  file.mode = static_cast<mode_t>(integer_in(json, "mode"));
  file.digest = text_in(json, "xxh3");
  return file;
}

Manifest manifest_in(const Json& json) {
  Manifest manifest;
  manifest.unit = text_in(json, "unit");
  manifest.facts = {integer_in(json, "generation"), text_in(json, "node"), text_in(json, "profile"),
                    integer_in(json, "published"), integer_in(json, "build_ms")};
  for (const Json& file : json.at("files")) manifest.files.push_back(file_in(file));
  manifest.directories = json.at("directories").get<std::vector<std::string>>();
  manifest.content_size = integer_in(json, "content_size");
  manifest.archive_size = integer_in(json, "archive_size");
  manifest.archive_digest = text_in(json, "archive_digest");
  return manifest;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const EntryFile& file : manifest.files) files.push_back(to_json(file));
  const Json json = {{"archive_digest", manifest.archive_digest},
                     {"archive_size", manifest.archive_size},
                     {"build_ms", manifest.facts.build_ms},
                     {"content_size", manifest.content_size},
                     {"directories", manifest.directories},
                     {"files", std::move(files)},
                     {"format", kFormat},
                     {"generation", manifest.facts.generation},
                     {"node", manifest.facts.node},
                     {"profile", manifest.facts.profile},
                     {"published", manifest.facts.published},
                     {"unit", manifest.unit}};
  return json.dump();
}

// The comparison with to_text() refuses unknown and repeated members, and numbers that do not fit their types.
std::variant<Manifest, ObjectRefusal> parse_manifest(std::string_view text) {
  const Json json = parse_json(text, {kMostManifestBytes, kManifestDepth});
  try {
    if (const std::uint64_t format = integer_in(json, "format"); format != kFormat) {
      return ObjectRefusal{Refusal::kStale, fmt::format("it has the unknown format {}", format)};
    }
    Manifest manifest = manifest_in(json);
    if (to_text(manifest) == text) return manifest;
  } catch (const Json::exception&) {
  }
  return ObjectRefusal{Refusal::kCorrupt, "its manifest is malformed"};
}

}  // namespace cacheshim::remote
