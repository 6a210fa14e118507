// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_object.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "store/sys/digest.h"
#include "store/sys/json_text.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr const char* kUnit = "triton/KEY";

SecretKey key_of(unsigned char seed) {
  SecretKey::Seed bytes;
  bytes.fill(seed);
  return SecretKey::from_seed(bytes);
}

// Bytes that zstd cannot compress; the same for the same seed.
std::string noise(std::size_t count, unsigned seed = 1) {
  std::string bytes;
  for (std::uint64_t state = seed; bytes.size() < count;) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    bytes.push_back(static_cast<char>(state >> 56));
  }
  return bytes;
}

std::string compressed(const std::string& content) {
  std::string archive(::ZSTD_compressBound(content.size()), '\0');
  archive.resize(
      ::ZSTD_compress(archive.data(), archive.size(), content.data(), content.size(), 3));
  return archive;
}

std::string blake2b(std::string_view bytes, std::size_t digest_bytes = 32) {
  std::string digest(digest_bytes, '\0');
  ::crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), 32,
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                       0);
  return digest;
}

std::string message_of(const std::variant<std::string, ObjectError>& result) {
  const auto* error = std::get_if<ObjectError>(&result);
  return error != nullptr ? std::string(::strerrorname_np(error->code)) + " " + error->message
                          : "<packed>";
}

const char* name_of(Refusal reason) {
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
std::map<std::string, std::string> tree_of(const std::string& top) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(top)) {
    struct stat st {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &st), 0);
    std::string& object = tree[entry.path().lexically_relative(top).string()];
    object = std::to_string(st.st_mode) + " ";
    if (S_ISLNK(st.st_mode)) object += fs::read_symlink(entry.path()).string();
    if (!S_ISREG(st.st_mode)) continue;
    std::ostringstream content;
    content << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    object += content.str();
  }
  return tree;
}

class EntryObject : public ::testing::Test {
 protected:
  EntryObject() {
    write("triton/KEY/kernel.cubin", noise(300'000));
    write("triton/KEY/kernel.json", R"({"name": "kernel"})");
    write("triton/KEY/launcher.so", std::string(5000, 'x'), 0755);
    write("triton/KEY/nothing", "");
    write("triton/KEY/sub/deep/\xc3\xa4 name", "umlaut", 0400);
    write("triton/KEY/sub-1", "sorts between sub and sub/deep in plain byte order");
    fs::create_directories(scratch_ / "store/triton/KEY/empty/inner");
    fs::create_symlink("sub/deep", scratch_ / "store/triton/KEY/link");
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
  // Returns "accepted", or the reason of the refusal.
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
  // Returns an object of two small files, as it is before `change`; the archive is valid.
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
  // Returns the error of unpack(), "<unpacked>" if there is none.
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

// ---- pack

TEST_F(EntryObject, UnpacksToEqualFiles) {
  const std::string object = packed();
  const Manifest manifest = opened(object);
  const mode_t umask = ::umask(077);
  EXPECT_EQ(unpack_to("target", object, manifest), "<unpacked>");
  ::umask(umask);
  EXPECT_EQ(tree_of(scratch_ / "target"), tree_of(scratch_ / "store"));
  EXPECT_EQ(manifest.facts.node + manifest.facts.profile, "node-1triton");
  EXPECT_EQ(manifest.facts.published, 1'764'000'000U);
  EXPECT_EQ(manifest.facts.build_ms, 1500U);
  EXPECT_EQ(manifest.directories, std::vector<std::string>{"triton/KEY/empty/inner"});
  std::vector<std::string> paths;
  for (const EntryFile& file : manifest.files) {
    paths.push_back(file.path.substr(11));
    if (!file.link.empty()) continue;
    const UniqueFd fd(::open((scratch_ / ("store/" + file.path)).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(file.digest, *digest_of(fd.get())) << file.path;
  }
  EXPECT_EQ(paths, (std::vector<std::string>{"kernel.cubin", "kernel.json", "launcher.so", "link",
                                             "nothing", "sub/deep/\xc3\xa4 name", "sub-1"}));
}

// Reads the object without the library's functions.
TEST_F(EntryObject, HasTheDocumentedLayout) {
  const std::string object = packed();
  EXPECT_EQ(object.substr(0, 8), "CSHIMOB1");
  const auto byte_at = [&](std::size_t at) {
    return std::size_t{static_cast<unsigned char>(object[at])};
  };
  const std::size_t length = byte_at(8) | byte_at(9) << 8 | byte_at(10) << 16 | byte_at(11) << 24;
  const PublicKey key = key_.public_key();
  EXPECT_EQ(object.substr(12, 8),
            blake2b({reinterpret_cast<const char*>(key.bytes.data()), 32}).substr(0, 8));
  const std::string text = object.substr(84, length);
  const std::string signed_text = std::string("cacheshim entry object 1") + '\0' + text;
  EXPECT_EQ(
      ::crypto_sign_verify_detached(reinterpret_cast<const unsigned char*>(object.data() + 20),
                                    reinterpret_cast<const unsigned char*>(signed_text.data()),
                                    signed_text.size(), key.bytes.data()),
      0);
  const std::string archive = object.substr(84 + length);
  const Json json = Json::parse(text);
  EXPECT_EQ(json.dump(), text);
  EXPECT_EQ(json["archive_digest"], to_hex(blake2b(archive)));
  EXPECT_EQ(json["archive_size"], archive.size());
  EXPECT_EQ(json["generation"], 3);
  EXPECT_EQ(json["unit"], kUnit);
  EXPECT_EQ(json["files"][1].dump(),
            R"({"mode":420,"path":"triton/KEY/kernel.json","size":18,"xxh3":")" +
                json["files"][1]["xxh3"].get<std::string>() + "\"}");
  EXPECT_EQ(json["files"][3].dump(), R"({"link":"sub/deep","path":"triton/KEY/link"})");
  std::string content;
  for (const Json& file : json["files"]) {
    if (!file.contains("link"))
      content += scratch_.read("store/" + file["path"].get<std::string>());
  }
  std::string found(content.size(), '\0');
  EXPECT_EQ(::ZSTD_decompress(found.data(), found.size(), archive.data(), archive.size()),
            content.size());
  EXPECT_EQ(found, content);
  EXPECT_EQ(json["content_size"], content.size());
}

TEST_F(EntryObject, EqualEntriesGiveEqualBytes) {
  const std::string first = packed();
  const Scratch other;
  const UniqueFd base = other.open_dir("store");
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(scratch_ / "store"))
    paths.push_back(entry.path());
  std::sort(paths.rbegin(), paths.rend());  // another order of creation
  for (const fs::path& path : paths) {
    const fs::path copy = other / "store" / path.lexically_relative(scratch_ / "store");
    fs::create_directories(copy.parent_path());
    if (!fs::is_directory(path) || fs::is_symlink(path))
      fs::copy(path, copy, fs::copy_options::copy_symlinks);
    if (fs::is_directory(path) && !fs::is_symlink(path)) fs::create_directories(copy);
  }
  EXPECT_EQ(std::get<0>(pack({base.get(), kUnit, {kUnit}}, facts_, key_)), first);
  EXPECT_EQ(packed(), first);
  const auto differs = [&](const std::function<void(EntryFacts&)>& change) {
    EntryFacts facts = facts_;
    change(facts);
    return std::get<0>(pack({base.get(), kUnit, {kUnit}}, facts, key_)) != first;
  };
  EXPECT_TRUE(differs([](EntryFacts& facts) { ++facts.generation; }));
  EXPECT_TRUE(differs([](EntryFacts& facts) { ++facts.published; }));
  EXPECT_TRUE(differs([](EntryFacts& facts) { ++facts.build_ms; }));
  EXPECT_TRUE(differs([](EntryFacts& facts) { facts.node = "node-2"; }));
  EXPECT_TRUE(differs([](EntryFacts& facts) { facts.profile = "jax"; }));
}

TEST_F(EntryObject, KeepsAnEntryOfSeveralFiles) {
  write("jax/f-KEY.body", "body");
  write("jax/f-KEY.index", "index");
  write("jax/other", "other");
  fs::create_symlink("f-KEY.body", scratch_ / "store/jax/f-KEY.link");
  const std::string unit = "jax/f-KEY.body";
  const std::vector<std::string> paths = {"jax/f-KEY.link", "jax/f-KEY.index", unit};
  const auto object = pack({base_.get(), unit, paths}, facts_, key_);
  ASSERT_EQ(message_of(object), "<packed>");
  const auto is_part = [&](const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  };
  EXPECT_EQ(verdict(std::get<0>(object), {unit, 3, is_part}), "accepted");
  EXPECT_EQ(verdict(std::get<0>(object), {unit, 3}), "corrupt");
  const auto manifest = open_object(std::get<0>(object), {unit, 3, is_part}, allowed_);
  EXPECT_EQ(unpack_to("target", std::get<0>(object), std::get<Manifest>(manifest)), "<unpacked>");
  EXPECT_EQ(scratch_.read("target/jax/f-KEY.index") + scratch_.read("target/jax/f-KEY.link"),
            "indexbody");
  EXPECT_FALSE(scratch_.exists("target/jax/other"));
}

TEST_F(EntryObject, KeepsEmptyAndLargeEntries) {
  fs::remove_all(scratch_ / "store/triton/KEY");
  fs::create_directory(scratch_ / "store/triton/KEY");
  const std::string empty = packed();
  EXPECT_EQ(unpack_to("target", empty, opened(empty)), "<unpacked>");
  EXPECT_EQ(tree_of(scratch_ / "target"), tree_of(scratch_ / "store"));
  // More than the window and the buffers.
  write("triton/KEY/a", noise(5 * kMiB + 1) + std::string(3 * kMiB, 'a'));
  write("triton/KEY/b", noise(131'072, 2));
  const std::string large = packed();
  EXPECT_LT(large.size(), 6 * kMiB);
  EXPECT_EQ(unpack_to("large", large, opened(large)), "<unpacked>");
  EXPECT_EQ(tree_of(scratch_ / "large"), tree_of(scratch_ / "store"));
}

TEST_F(EntryObject, IsAtMostAsLargeAsTheLimitsAllow) {
  fs::remove_all(scratch_ / "store/triton/KEY");
  const ObjectLimits limits{.content_bytes = 3 * kMiB};
  write("triton/KEY/a", noise(3 * kMiB));
  EXPECT_LE(packed().size(), most_object_bytes(limits));
  EXPECT_EQ(message_of(try_pack({kUnit}, limits)), "<packed>");
  write("triton/KEY/b", "1");
  EXPECT_EQ(message_of(try_pack({kUnit}, limits)),
            "EFBIG cannot pack 'triton/KEY': its files have more than 3145728 bytes");
}

TEST_F(EntryObject, PackDropsSpecialModeBits) {
  write("triton/KEY/launcher.so", "x", 06755);
  const Manifest manifest = opened(packed());
  EXPECT_EQ(manifest.files[2].path, "triton/KEY/launcher.so");
  EXPECT_EQ(manifest.files[2].mode, 0755U);
}

TEST_F(EntryObject, PackKeepsAccessTimes) {
  const std::string path = scratch_ / "store/triton/KEY/kernel.json";
  const timespec times[2] = {{1000, 0}, {2000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  (void)packed();
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_atim.tv_sec, 1000);
}

TEST_F(EntryObject, PackRefusesWhatNoReaderAccepts) {
  const std::string top = scratch_ / "store/triton/KEY/";
  const auto fails_with = [&](const std::string& name, const std::string& error) {
    EXPECT_EQ(message_of(try_pack()), error);
    fs::remove(top + name);
  };
  ASSERT_EQ(::mkfifo((top + "fifo").c_str(), 0644), 0);
  fails_with(
      "fifo",
      "EINVAL cannot pack 'triton/KEY': 'triton/KEY/fifo': it is not a file, a directory or a symlink");
  for (const char* target :
       {"/etc/passwd", "..", "../KEY/kernel.json", "sub/../../x", "./sub", "sub/", "a//b"}) {
    fs::create_symlink(target, top + "bad");
    EXPECT_TRUE(message_of(try_pack()).starts_with("EINVAL cannot pack 'triton/KEY': the path '"))
        << target;
    fs::remove(top + "bad");
  }
  write("triton/KEY/\xff", "x");
  fails_with(
      "\xff",
      R"(EINVAL cannot pack 'triton/KEY': 'triton/KEY/\xff': the path 'triton/KEY/\xff' is not normal)");
  write("triton/KEY/a\nb", "x");
  fails_with(
      "a\nb",
      R"(EINVAL cannot pack 'triton/KEY': 'triton/KEY/a\x0ab': the path 'triton/KEY/a\x0ab' is not normal)");
  const auto code_for = [&](const std::string& unit, const std::vector<std::string>& paths,
                            EntryFacts facts) {
    const auto object = pack({base_.get(), unit, paths}, facts, key_);
    return object.index() == 1 ? std::get<1>(object).code : 0;
  };
  EXPECT_EQ(code_for(kUnit, {kUnit}, facts_), 0);
  EXPECT_EQ(code_for(kUnit, {"triton/NONE"}, facts_), ENOENT);
  EXPECT_EQ(code_for(kUnit, {""}, facts_), EINVAL);
  EXPECT_EQ(code_for(kUnit, {"../store/triton/KEY"}, facts_), EINVAL);
  EXPECT_EQ(code_for(kUnit, {kUnit, "triton/KEY/sub"}, facts_), EINVAL) << "a path twice";
  EXPECT_EQ(code_for("../x", {kUnit}, facts_), EINVAL);
  EXPECT_EQ(code_for(kUnit, {kUnit}, {3, "a\nb", "triton", 0, 0}), EINVAL);
  EXPECT_EQ(code_for(kUnit, {kUnit}, {3, "a", std::string(256, 'x'), 0, 0}), EINVAL);
}

TEST_F(EntryObject, PackFollowsNoSymlink) {
  fs::create_directory_symlink("KEY", scratch_ / "store/triton/ALIAS");
  EXPECT_EQ(
      message_of(try_pack({"triton/ALIAS/sub"})),
      "ELOOP cannot pack 'triton/KEY': 'triton/ALIAS/sub': Too many levels of symbolic links");
  // The symlink itself would be the entry, and its target is another entry.
  EXPECT_EQ(message_of(pack({base_.get(), "triton/ALIAS", {"triton/ALIAS"}}, facts_, key_)),
            "EINVAL cannot pack 'triton/ALIAS': the symlink 'triton/ALIAS' leads out of the entry");
}

TEST_F(EntryObject, PackObeysTheLimits) {
  EXPECT_EQ(message_of(try_pack({kUnit}, {.files = 8})), "<packed>");
  EXPECT_EQ(message_of(try_pack({kUnit}, {.files = 7})),
            "EFBIG cannot pack 'triton/KEY': it has more than 7 files");
  EXPECT_EQ(message_of(try_pack({kUnit}, {.depth = 5})), "<packed>");
  EXPECT_TRUE(message_of(try_pack({kUnit}, {.depth = 4})).starts_with("EFBIG "));
  EXPECT_EQ(message_of(try_pack({kUnit}, {.path_bytes = 27})), "<packed>");
  EXPECT_TRUE(message_of(try_pack({kUnit}, {.path_bytes = 26})).starts_with("EFBIG "));
  for (int i = 0; i < 7000; ++i)
    write("triton/KEY/long-name-" + std::string(60, 'x') + std::to_string(i), "");
  EXPECT_EQ(message_of(try_pack({kUnit}, {.files = 100'000})),
            "EFBIG cannot pack 'triton/KEY': its manifest is too long");
  EXPECT_EQ(message_of(try_pack()), "EFBIG cannot pack 'triton/KEY': it has more than 4096 files");
}

// Changes the entry when pack() opens a large file of it, so that the other files have been read already. The thread
// may run too late under load, so the test repeats; without the check that it tests, every round would pack the entry.
TEST_F(EntryObject, PackNoticesChangesDuringTheCall) {
  const std::string top = scratch_ / "store/triton/KEY/";
  write("triton/KEY/x-large", "");
  fs::resize_file(top + "x-large", 64 * kMiB);
  const auto notices = [&](const std::function<void()>& change) {
    for (int round = 0; round < 50; ++round) {
      const UniqueFd events(::inotify_init1(IN_CLOEXEC));
      EXPECT_NE(::inotify_add_watch(events.get(), (top + "x-large").c_str(), IN_OPEN), -1);
      std::thread thread([&] {
        char event[512];
        EXPECT_GT(::read(events.get(), event, sizeof event), 0);
        change();
      });
      const auto object = try_pack();
      const UniqueFd opened(
          ::open((top + "x-large").c_str(), O_RDONLY | O_CLOEXEC));  // ends the thread
      thread.join();
      if (object.index() == 0) continue;
      EXPECT_EQ(std::get<1>(object).code, ESTALE);
      return std::get<1>(object).message.ends_with(" has changed meanwhile");
    }
    return false;
  };
  const auto overwrite = [&](const std::string& name) {
    const UniqueFd file(::open((top + name).c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(::pwrite(file.get(), "x", 1, 0), 1);
  };
  const auto replace = [&] {
    write("triton/NEW", R"({"name": "kernel"})");
    fs::rename(scratch_ / "store/triton/NEW", top + "kernel.json");
  };
  const auto add_or_remove = [&] {
    if (!fs::remove(top + "added")) write("triton/KEY/added", "x");
  };
  EXPECT_TRUE(notices([&] { overwrite("x-large"); }));
  EXPECT_TRUE(notices([&] { overwrite("kernel.json"); }));
  EXPECT_TRUE(notices(replace));
  EXPECT_TRUE(notices(add_or_remove));
  EXPECT_TRUE(notices(add_or_remove));
  EXPECT_TRUE(notices([&] { ::chmod((top + "kernel.json").c_str(), 0600); }));
  EXPECT_TRUE(notices([&] { fs::resize_file(top + "x-large", 64 * kMiB - 1); }));
}

// ---- open_object

TEST_F(EntryObject, EveryChangedBitIsRefused) {
  const std::string object = crafted();
  ASSERT_EQ(verdict(object), "accepted");
  ASSERT_LT(object.size(), 1000U);
  for (std::size_t at = 0; at < object.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string changed = object;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      ASSERT_NE(verdict(changed), "accepted") << "byte " << at << ", bit " << bit;
    }
  }
}

TEST_F(EntryObject, EveryTruncationIsRefused) {
  const std::string object = crafted();
  for (std::size_t size = 0; size < object.size(); ++size) {
    ASSERT_NE(verdict(std::string(object.substr(0, size))), "accepted") << size;
  }
  EXPECT_EQ(verdict(object + '\0'), "corrupt");
  EXPECT_EQ(verdict(object), "accepted");
}

TEST_F(EntryObject, OnlyAllowedKeysAreTrusted) {
  std::string object = crafted();
  allowed_ = {key_of(8).public_key()};
  EXPECT_EQ(verdict(object), "untrusted");
  // The header names the allowed key, but another key has signed.
  const KeyId id = key_of(8).public_key().id();
  std::copy(id.begin(), id.end(), object.begin() + 12);
  EXPECT_EQ(verdict(object), "untrusted");
  allowed_.clear();
  EXPECT_EQ(verdict(object), "untrusted");
}

TEST_F(EntryObject, SignatureOfAnotherDomainIsRefused) {
  std::string object = crafted();
  const std::string manifest = to_text(opened(object));
  const Signature signature = key_.sign("something else", manifest);
  std::copy(signature.begin(), signature.end(), object.begin() + 20);
  EXPECT_EQ(verdict(object), "untrusted");
}

TEST_F(EntryObject, NothingIsParsedBeforeTheSignatureIsVerified) {
  for (const std::string& manifest : {std::string("{}"), std::string(kMostManifestBytes, '['),
                                      to_text(opened(crafted())) + " "}) {
    EXPECT_EQ(verdict(sign_object(manifest, "archive", key_of(9))), "untrusted");
  }
}

TEST_F(EntryObject, OtherUnitsGenerationsAndFormatsAreStale) {
  const std::string object = crafted();
  EXPECT_EQ(verdict(object, {"triton/OTHER", 3}), "stale");
  EXPECT_EQ(verdict(object, {"triton", 3}), "stale");
  EXPECT_EQ(verdict(object, {kUnit, 2}), "stale");
  EXPECT_EQ(verdict(object, {kUnit, 4}), "stale");
  Json json = Json::parse(to_text(opened(object)));
  json["format"] = 2;
  EXPECT_EQ(verdict(sign_object(json.dump(), "", key_)), "stale");
}

TEST_F(EntryObject, ManifestHasOneForm) {
  const std::string archive = compressed("abc12");
  const std::string good = to_text(opened(crafted()));
  const auto verdict_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return verdict(sign_object(text, archive, key_));
  };
  EXPECT_EQ(verdict_with("{", "{"), "accepted");
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("build_ms":1500)", R"("build_ms": 1500)"},
      {R"("build_ms":1500)", R"("build_ms":1500,"color":"red")"},
      {R"("build_ms":1500,)", R"("build_ms":1500,"build_ms":1500,)"},
      {R"("build_ms":1500,)", ""},
      {R"("build_ms":1500)", R"("build_ms":1500.0)"},
      {R"("build_ms":1500)", R"("build_ms":-1500)"},
      {R"("build_ms":1500)", R"("build_ms":1e300)"},
      {R"("build_ms":1500)", R"("build_ms":18446744073709551616)"},
      {R"("build_ms":1500)", R"("build_ms":"1500")"},
      {R"("mode":420)", R"("mode":4294967716)"},
      {R"("mode":420)", R"("color":"red","mode":420)"},
      {R"("mode":420)", R"("link":"b","mode":420)"},
      {R"("directories":[])", R"("directories":{})"},
      {R"("directories":[])", R"("directories":"x")"},
      {R"("directories":[])", R"("directories":[1])"},
      {R"("files":[)", R"("files":[1,)"},
      {R"("files":[)", R"("files":[[[[]]],)"},
      {R"("node":"node-1")", R"("node":"node\u002d1")"},
      {R"("node":"node-1")", "\"node\":\"\xff\""},
      {R"("node":"node-1")", R"("node":"a\nb")"},
      {R"("unit")", R"("unit" )"},
      {R"("path":"triton)", R"("path":"\u0000riton)"},
      {good, "[]"},
      {good, ""},
      {good, std::string(kMostManifestBytes, '[')},
      {good, std::string(kMostManifestBytes, ' ')}};
  for (const auto& [from, to] : changes)
    EXPECT_EQ(verdict_with(from, to), "corrupt") << to.substr(0, 80);
  EXPECT_EQ(verdict(sign_object(std::string(kMostManifestBytes + 1, ' '), archive, key_)),
            "corrupt");
}

struct ManifestCase {
  const char* expected;
  std::function<void(Manifest&)> change;
};

TEST_F(EntryObject, ManifestsThatBreakTheRulesAreRefused) {
  const std::string digest = digest_of_text("abc");
  const auto rename_to = [](const std::string& path) {
    return [path](Manifest& manifest) { manifest.files[1].path = path; };
  };
  const auto link_to = [](const std::string& target) {
    return [target](Manifest& manifest) {
      manifest.files.push_back({"triton/KEY/c", 0, 0, "", target});
    };
  };
  const auto add_dir = [](const std::string& path) {
    return [path](Manifest& manifest) { manifest.directories.push_back(path); };
  };
  const std::string below = "triton/KEY/";
  std::string deep = below + "z";
  while (deep.size() < 300) deep += "/z";
  const std::vector<ManifestCase> cases = {
      {"accepted", rename_to(below + "b")},
      {"corrupt", rename_to("../x")},
      {"corrupt", rename_to(below + "../x")},
      {"corrupt", rename_to(below + "../KEY/x")},
      {"corrupt", rename_to("/etc/passwd")},
      {"corrupt", rename_to("/triton/KEY/x")},
      {"corrupt", rename_to("")},
      {"corrupt", rename_to("triton/KEYS")},
      {"corrupt", rename_to("triton")},
      {"corrupt", rename_to("x")},
      {"corrupt", rename_to(below)},
      {"corrupt", rename_to(below + "/b")},
      {"corrupt", rename_to(below + "./b")},
      {"corrupt", rename_to(below + "b/.")},
      {"corrupt", rename_to(below + "b/..")},
      {"corrupt", rename_to(below + "b/")},
      {"corrupt", rename_to(below + "b\nc")},
      {"corrupt", rename_to(below + std::string(1, '\0'))},
      {"corrupt", rename_to(below + "b" + std::string(1, '\0') + "c")},
      {"corrupt", rename_to(below + "\x7f")},
      {"corrupt", rename_to(below + "\u202e")},
      {"corrupt", rename_to(below + std::string(256, 'b'))},
      {"accepted", rename_to(below + std::string(255, 'b'))},
      {"too large", rename_to(deep)},
      {"too large", rename_to(below + std::string(3072, 'b'))},
      {"corrupt", rename_to(below + "a")},    // repeated
      {"corrupt", rename_to(below + "a/b")},  // below a file
      {"corrupt", rename_to("triton/KEY")},   // the parent of a file
      {"corrupt", rename_to(below + "0")},    // not sorted
      {"corrupt", add_dir(below + "a")},      // a file and a directory
      {"corrupt", add_dir(below + "b/c")},    // below a file
      {"corrupt", add_dir("triton/KEY")},     // not empty
      {"corrupt", add_dir("triton")},         // outside
      {"corrupt", add_dir("../x")},
      {"corrupt", add_dir("/x")},
      {"accepted", add_dir(below + "a-b")},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "d", below + "d"};
       }},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "d", below + "d/e"};
       }},
      {"corrupt",
       [&](Manifest& manifest) {
         manifest.directories = {below + "e", below + "d"};
       }},
      {"corrupt",  // a parent that does not directly precede its child in plain byte order
       [&](Manifest& manifest) {
         manifest.directories = {below + "a/c"};
         manifest.files[1].path = below + "a-b";
       }},
      {"accepted", link_to("a")},
      {"accepted", link_to("none/such")},
      {"corrupt", link_to("/etc/passwd")},
      {"corrupt", link_to("..")},
      {"corrupt", link_to("../KEY/a")},
      {"corrupt", link_to("a/../../../x")},
      {"corrupt", link_to(".")},
      {"corrupt", link_to("a/")},
      {"corrupt", link_to("a\nb")},
      {"too large", link_to(std::string(4000, 'a'))},
      {"corrupt",  // below a symlink
       [&](Manifest& manifest) {
         manifest.files.push_back({below + "c", 0, 0, "", "a"});
         manifest.files.push_back({below + "c/d", 0, 0644, digest, ""});
       }},
      {"corrupt",  // the unit is a symlink to another entry
       [](Manifest& manifest) {
         manifest.files = {{"triton/KEY", 0, 0, "", "OTHER"}};
         manifest.content_size = 0;
       }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].mode = 04755; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].mode = 0100644; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].digest = ""; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].digest[3] = 'A'; }},
      {"corrupt", [](Manifest& manifest) { manifest.files[0].size = 4; }},
      {"corrupt", [](Manifest& manifest) { manifest.content_size = 6; }},
      {"corrupt",  // the sum overflows
       [](Manifest& manifest) {
         manifest.files[0].size = ~std::uint64_t{0};
         manifest.files[1].size = 6;
       }},
      {"too large",
       [](Manifest& manifest) {
         manifest.content_size = ObjectLimits().content_bytes + 1;
         manifest.files[0].size = manifest.content_size - 2;
       }},
      {"corrupt", [](Manifest& manifest) { ++manifest.archive_size; }},
      {"corrupt", [](Manifest& manifest) { manifest.archive_digest[0] ^= 1; }},
      {"corrupt", [](Manifest& manifest) { manifest.archive_digest = ""; }},
      {"corrupt", [](Manifest& manifest) { manifest.facts.profile = "\x1b[2J"; }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(verdict(crafted(cases[i].change)), cases[i].expected) << "case " << i;
  }
}

TEST_F(EntryObject, ManyFilesAreRefused) {
  const std::string directories = crafted([](Manifest& manifest) {
    manifest.unit = "u";
    manifest.files.clear();
    manifest.content_size = 0;
    for (int i = 100'000; i < 200'000; ++i)
      manifest.directories.push_back("u/" + std::to_string(i).substr(1));
  });
  ASSERT_LE(directories.size(), kMostManifestBytes);
  EXPECT_EQ(verdict(directories, {"u", 3}), "too large");
  EXPECT_EQ(verdict(directories, {"u", 3}, {.files = 100'000}), "accepted");
  const std::string links = crafted([](Manifest& manifest) {
    for (int i = 100'000; i < 200'000; ++i) {
      manifest.files.push_back({"triton/KEY/c" + std::to_string(i), 0, 0, "", "a"});
    }
  });
  EXPECT_EQ(verdict(links), "corrupt") << "its manifest is longer than the format allows";
}

TEST_F(EntryObject, ReaderObeysItsLimits) {
  const std::string object = packed();
  const ExpectedEntry expected{kUnit, 3};
  EXPECT_EQ(verdict(object, expected, {.files = 8, .depth = 5, .path_bytes = 27}), "accepted");
  EXPECT_EQ(verdict(object, expected, {.files = 7}), "too large");
  EXPECT_EQ(verdict(object, expected, {.depth = 4}), "too large");
  EXPECT_EQ(verdict(object, expected, {.path_bytes = 26}), "too large");
  EXPECT_EQ(verdict(object, expected, {.content_bytes = 305'000}), "too large");
}

// ---- unpack

TEST_F(EntryObject, UnpackRefusesATargetThatIsNotEmpty) {
  const std::string object = crafted();
  scratch_.write("target/mine", "mine");
  EXPECT_EQ(unpack_to("target", object, opened(object)),
            "ENOTEMPTY cannot unpack 'triton/KEY': Directory not empty");
  EXPECT_EQ(scratch_.read("target/mine"), "mine");
}

// Each archive has a valid digest, so only unpack() can find what is wrong.
TEST_F(EntryObject, UnpackRefusesWrongArchivesAndLeavesNothing) {
  const std::string zeros(64 * kMiB, '\0');
  std::string wide(1000, '\0');
  {
    ZSTD_CCtx* const context = ::ZSTD_createCCtx();
    (void)::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer in{"abc12", 5, 0};
    ZSTD_outBuffer out{wide.data(), wide.size(), 0};
    (void)::ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
    EXPECT_EQ(::ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
    wide.resize(out.pos);
    (void)::ZSTD_freeCCtx(context);
  }
  const std::string good = compressed("abc12");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {compressed(zeros), "a bomb: other content, and too much"},
      {compressed("abc12" + zeros), "a bomb behind the right content"},
      {compressed("abc123"), "a byte more"},
      {compressed("abc1"), "a byte less"},
      {compressed("abc13"), "other content of the second file"},
      {compressed("xbc12"), "other content of the first file"},
      {good + good, "two frames"},
      {compressed("abc") + compressed("12"), "the right content in two frames"},
      {good + "x", "bytes behind the frame"},
      {good.substr(0, good.size() - 1), "a frame that is cut off"},
      {"", "no frame"},
      {"nonsense", "not a frame"},
      {wide, "a frame that needs 128 MiB of memory"}};
  for (const auto& [archive, what] : cases) {
    const std::string object = crafted_with(archive);
    ASSERT_EQ(verdict(object), "accepted") << what;
    const std::string error = unpack_to("target", object, opened(object));
    EXPECT_TRUE(error.starts_with("EBADMSG cannot unpack 'triton/KEY")) << what << ": " << error;
    EXPECT_TRUE(error.ends_with(": the archive does not contain what the manifest states"))
        << error;
    EXPECT_TRUE(fs::is_empty(scratch_ / "target")) << what;
  }
  EXPECT_EQ(unpack_to("target", crafted(), opened(crafted())), "<unpacked>");
  EXPECT_EQ(scratch_.read("target/triton/KEY/a") + scratch_.read("target/triton/KEY/b"), "abc12");
}

TEST_F(EntryObject, UnpackLeavesNothingIfTheFileSystemRefuses) {
  const std::string object = crafted();
  Manifest manifest = opened(object);
  manifest.files[1].path = "triton/KEY/" + std::string(300, 'b');
  EXPECT_TRUE(unpack_to("target", object, manifest).ends_with(": File name too long"));
  EXPECT_TRUE(fs::is_empty(scratch_ / "target"));
}

// Skips open_object(), which refuses these manifests.
TEST_F(EntryObject, UnpackNeverWritesOutsideItsTarget) {
  const std::string object = crafted();
  scratch_.write("outer/beside/file", "beside");
  fs::create_directories(scratch_ / "outer/target");
  const auto before = tree_of(scratch_ / "outer");
  const std::string digest = opened(object).files[0].digest;
  const std::string absolute = scratch_ / "outer/beside/new";
  std::vector<std::vector<EntryFile>> cases;
  for (const std::string& path :
       {std::string("../x"), std::string("../beside/new"), std::string("../beside/file"),
        std::string("a/../../x"), std::string("a/b/../../../x"), std::string(".."),
        std::string("../target"), absolute, std::string("/"), std::string("")}) {
    cases.push_back({{path, 3, 0644, digest, ""}});
    cases.push_back({{path, 0, 0, "", "x"}});
    cases.push_back({{path + "/y", 3, 0644, digest, ""}});
  }
  for (const char* target : {"../beside", "..", "/"}) {
    cases.push_back({{"link", 0, 0, "", target}, {"link/new", 3, 0644, digest, ""}});
    cases.push_back(
        {{"d/link", 0, 0, "", "../" + std::string(target)}, {"d/link/x", 3, 0644, digest, ""}});
  }
  cases.push_back({{"link", 0, 0, "", "../beside/file"}, {"link", 3, 0644, digest, ""}});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Manifest manifest = opened(object);
    manifest.files = cases[i];
    EXPECT_NE(unpack_to("outer/target", object, manifest), "<unpacked>") << "case " << i;
    EXPECT_EQ(tree_of(scratch_ / "outer"), before) << "case " << i;
    manifest.files.clear();
    manifest.directories = {cases[i].back().path};
    (void)unpack_to("outer/target", object, manifest);
    EXPECT_EQ(tree_of(scratch_ / "outer"), before) << "case " << i << " as a directory";
  }
}

TEST_F(EntryObject, UnpackSetsNoSpecialModeBits) {
  const std::string object = crafted();
  Manifest manifest = opened(object);
  manifest.files[0].mode = 07755;
  EXPECT_EQ(unpack_to("target", object, manifest), "<unpacked>");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "target/triton/KEY/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0755U);
}

TEST_F(EntryObject, UnpackRefusesAManifestOfAnotherObject) {
  const Manifest manifest = opened(packed());
  EXPECT_TRUE(unpack_to("target", crafted(), manifest).starts_with("EBADMSG "));
  EXPECT_TRUE(unpack_to("target", "CSHIMOB1", manifest).starts_with("EBADMSG "));
  EXPECT_TRUE(fs::is_empty(scratch_ / "target"));
}

}  // namespace
}  // namespace cacheshim::remote
