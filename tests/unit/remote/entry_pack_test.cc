// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "tests/unit/support/entry_object_fixture.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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
TEST_F(EntryObject, ObjectHasTheDocumentedLayout) {
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
  // Larger than zstd's window (2 MiB) and the buffers.
  write("triton/KEY/a", noise(5 * kMiB + 1) + std::string(3 * kMiB, 'a'));
  write("triton/KEY/b", noise(131'072, 2));
  const std::string large = packed();
  EXPECT_LT(large.size(), 6 * kMiB);
  EXPECT_EQ(unpack_to("large", large, opened(large)), "<unpacked>");
  EXPECT_EQ(tree_of(scratch_ / "large"), tree_of(scratch_ / "store"));
}

TEST_F(EntryObject, ObjectIsAtMostAsLargeAsTheLimitsAllow) {
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

// A thread changes the entry when pack() opens the entry's large file, which pack() reads last. Under load, the thread
// may run only after pack() has returned, so the test makes up to 50 attempts. If pack() did not check for changes, all
// of them would pack the entry.
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
          ::open((top + "x-large").c_str(),
                 O_RDONLY | O_CLOEXEC));  // ends the thread if pack() has not done so
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

}  // namespace
}  // namespace cacheshim::remote
