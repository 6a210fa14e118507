// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/stat.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "remote/entry_object.h"
#include "store/sys/digest.h"
#include "store/sys/json_text.h"
#include "tests/unit/support/scratch.h"

// Objects of an entry "triton/KEY", and functions that pack, craft, open and unpack them.
namespace cacheshim::remote {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr const char* kUnit = "triton/KEY";

inline SecretKey key_of(unsigned char seed) {
  SecretKey::Seed bytes;
  bytes.fill(seed);
  return SecretKey::from_seed(bytes);
}

// Returns `count` bytes that zstd cannot compress. The same seed gives the same bytes.
inline std::string noise(std::size_t count, unsigned seed = 1) {
  std::string bytes;
  for (std::uint64_t state = seed; bytes.size() < count;) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    bytes.push_back(static_cast<char>(state >> 56));
  }
  return bytes;
}

inline std::string compressed(const std::string& content) {
  std::string archive(::ZSTD_compressBound(content.size()), '\0');
  archive.resize(
      ::ZSTD_compress(archive.data(), archive.size(), content.data(), content.size(), 3));
  return archive;
}

inline std::string blake2b(std::string_view bytes) {
  std::string digest(32, '\0');
  ::crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), digest.size(),
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                       0);
  return digest;
}

inline std::string message_of(const std::variant<std::string, ObjectError>& result) {
  const auto* error = std::get_if<ObjectError>(&result);
  return error != nullptr ? std::string(::strerrorname_np(error->code)) + " " + error->message
                          : "<packed>";
}

inline const char* name_of(Refusal reason) {
  switch (reason) {
    case Refusal::kCorrupt:
      return "corrupt";
    case Refusal::kUntrusted:
      return "untrusted";
    case Refusal::kStale:
      return "stale";
    case Refusal::kTooLarge:
      return "too large";
  }
  return "";
}

// Returns each object below `top` with its mode, and its content or target.
inline std::map<std::string, std::string> tree_of(const std::string& top) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
    struct stat st {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &st), 0);
    std::string& object = tree[entry.path().lexically_relative(top).string()];
    object = std::to_string(st.st_mode) + " ";
    if (S_ISLNK(st.st_mode)) object += std::filesystem::read_symlink(entry.path()).string();
    if (!S_ISREG(st.st_mode)) continue;
    std::ostringstream content;
    content << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    object += content.str();
  }
  return tree;
}

// A store with the entry kUnit, the key that signs its objects, and the keys that a reader allows.
class EntryObject : public ::testing::Test {
 protected:
  EntryObject() {
    write("triton/KEY/kernel.cubin", noise(300'000));
    write("triton/KEY/kernel.json", R"({"name": "kernel"})");
    write("triton/KEY/launcher.so", std::string(5000, 'x'), 0755);
    write("triton/KEY/nothing", "");
    write("triton/KEY/sub/deep/\xc3\xa4 name", "umlaut", 0400);
    write("triton/KEY/sub-1", "sorts between sub and sub/deep in plain byte order");
    std::filesystem::create_directories(scratch_ / "store/triton/KEY/empty/inner");
    std::filesystem::create_symlink("sub/deep", scratch_ / "store/triton/KEY/link");
  }

  void write(const std::string& path, const std::string& text, mode_t mode = 0644) const {
    scratch_.write("store/" + path, text);
    ASSERT_EQ(::chmod((scratch_ / ("store/" + path)).c_str(), mode), 0);
  }

  std::variant<std::string, ObjectError> try_pack(const std::vector<std::string>& paths = {kUnit},
                                                  const ObjectLimits& limits = {}) const {
    return pack({base_.get(), kUnit, paths}, facts_, key_, limits);
  }
  std::string packed(const std::vector<std::string>& paths = {kUnit}) const {
    auto object = try_pack(paths);
    EXPECT_EQ(message_of(object), "<packed>");
    return object.index() == 0 ? std::get<0>(std::move(object)) : "";
  }
  // Returns "accepted", or the reason for the refusal.
  std::string verdict(std::string_view object, const ExpectedEntry& expected = {kUnit, 3},
                      const ObjectLimits& limits = {}) const {
    const auto opened = open_object(object, expected, allowed_, limits);
    if (opened.index() == 0) return "accepted";
    const auto& refusal = std::get<ObjectRefusal>(opened);
    EXPECT_FALSE(refusal.message.empty());
    EXPECT_EQ(refusal.message.find('\n'), std::string::npos);
    return name_of(refusal.reason);
  }
  Manifest opened(std::string_view object) const {
    auto manifest = open_object(object, {kUnit, 3}, allowed_);
    EXPECT_EQ(manifest.index(), 0U) << std::get<ObjectRefusal>(manifest).message;
    return manifest.index() == 0 ? std::get<Manifest>(std::move(manifest)) : Manifest();
  }
  std::string digest_of_text(const std::string& text) const {
    scratch_.write("digested", text);
    const UniqueFd file(::open((scratch_ / "digested").c_str(), O_RDONLY | O_CLOEXEC));
    return *digest_of(file.get());
  }
  // Returns an object of two small files with a valid archive. `change` may alter the manifest before it is signed.
  std::string crafted(const std::function<void(Manifest&)>& change = {}) const {
    return crafted_with(compressed("abc12"), change);
  }
  std::string crafted_with(const std::string& archive,
                           const std::function<void(Manifest&)>& change = {}) const {
    Manifest manifest;
    manifest.unit = kUnit;
    manifest.facts = facts_;
    manifest.files = {{"triton/KEY/a", 3, 0644, digest_of_text("abc"), ""},
                      {"triton/KEY/b", 2, 0755, digest_of_text("12"), ""}};
    manifest.content_size = 5;
    manifest.archive_size = archive.size();
    manifest.archive_digest = to_hex(blake2b(archive));
    if (change) change(manifest);
    return sign_object(to_text(manifest), archive, key_);
  }
  // Returns the error of unpack(), or "<unpacked>" if there is none.
  std::string unpack_to(const std::string& name, std::string_view object,
                        const Manifest& manifest) const {
    const UniqueFd target = scratch_.open_dir(name);
    const auto error = unpack(object, manifest, target.get());
    return error ? std::string(::strerrorname_np(error->code)) + " " + error->message
                 : "<unpacked>";
  }

  const Scratch scratch_;
  const UniqueFd base_ = scratch_.open_dir("store");
  const SecretKey key_ = key_of(7);
  const EntryFacts facts_{3, "node-1", "triton", 1'764'000'000, 1500};
  std::vector<PublicKey> allowed_ = {key_of(8).public_key(), key_.public_key()};
};

}  // namespace cacheshim::remote
