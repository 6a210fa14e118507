// SPDX-License-Identifier: Apache-2.0
#include "remote/signing_keys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <latch>
#include <optional>
#include <thread>
#include <utility>

#include "common/unique_fd.h"
#include "store/sys/json_text.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::remote {
namespace {

// The base64 of 32 bytes that are all zero.
constexpr const char* kZeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

template <class Value>
std::string error_of(const std::variant<Value, KeyError>& result) {
  const auto* error = std::get_if<KeyError>(&result);
  return error != nullptr ? error->message : "<none>";
}

template <std::size_t size>
std::string hex(const std::array<unsigned char, size>& bytes) {
  return to_hex(std::string(bytes.begin(), bytes.end()));
}

void set_mode(const std::string& path, mode_t mode) { ASSERT_EQ(::chmod(path.c_str(), mode), 0); }

mode_t mode_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0);
  return st.st_mode & 07777;
}

void write_secret_file(const Scratch& scratch, const std::string& text) {
  scratch.write("secret", text);
  set_mode(scratch / "secret", 0600);
}

// Source: RFC 8032, section 7.1, test 1.
TEST(SecretKey, HasThePublicKeyOfItsSeed) {
  const std::string bytes =
      from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
  SecretKey::Seed seed;
  std::copy(bytes.begin(), bytes.end(), seed.begin());
  const PublicKey key = SecretKey::from_seed(seed).public_key("test");
  EXPECT_EQ(hex(key.bytes), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(key.comment, "test");
}

TEST(SecretKey, SignsForOneDomainAndOneMessage) {
  const SecretKey secret = SecretKey::generate();
  const PublicKey key = secret.public_key();
  const PublicKey other = SecretKey::generate().public_key();
  Signature signature = secret.sign("domain", "message");
  EXPECT_TRUE(is_signed_by(key, "domain", "message", signature));
  EXPECT_FALSE(is_signed_by(other, "domain", "message", signature));
  EXPECT_FALSE(is_signed_by(key, "domain", "messages", signature));
  EXPECT_FALSE(is_signed_by(key, "domai", "nmessage", signature));
  EXPECT_FALSE(is_signed_by(key, "", std::string_view("domain\0message", 14), signature));
  signature[63] = static_cast<unsigned char>(signature[63] ^ 1U);
  EXPECT_FALSE(is_signed_by(key, "domain", "message", signature));
}

TEST(SecretKey, GeneratedKeysDiffer) {
  const PublicKey one = SecretKey::generate().public_key();
  const PublicKey other = SecretKey::generate().public_key();
  EXPECT_NE(one.bytes, other.bytes);
  EXPECT_NE(one.id(), other.id());
}

TEST(SecretKeyFile, KeepsTheKey) {
  const Scratch scratch;
  const SecretKey written = SecretKey::generate();
  const mode_t umask = ::umask(0);
  const auto error = write_secret_key(scratch / "secret", written);
  ::umask(umask);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(mode_of(scratch / "secret"), 0600U);
  const std::string text = scratch.read("secret");
  EXPECT_TRUE(text.starts_with("cacheshim-secret-key-1 "));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto read = read_secret_key(scratch / "secret");
  ASSERT_EQ(error_of(read), "<none>");
  EXPECT_EQ(std::get<SecretKey>(read).public_key().bytes, written.public_key().bytes);
  EXPECT_EQ(std::get<SecretKey>(read).sign("d", "m"), written.sign("d", "m"));
}

TEST(SecretKeyFile, IsNotOverwritten) {
  const Scratch scratch;
  scratch.write("secret", "something else");
  const auto error = write_secret_key(scratch / "secret", SecretKey::generate());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message,
            "cannot write the secret key '" + scratch / "secret" + "': File exists");
  EXPECT_EQ(scratch.read("secret"), "something else");
}

TEST(SecretKeyFile, IsRefusedIfOthersHaveAnyPermission) {
  const Scratch scratch;
  ASSERT_FALSE(write_secret_key(scratch / "secret", SecretKey::generate()));
  for (const mode_t mode : {0640U, 0620U, 0610U, 0604U, 0602U, 0601U}) {
    set_mode(scratch / "secret", mode);
    EXPECT_NE(error_of(read_secret_key(scratch / "secret")).find("must be 0600 or stricter"),
              std::string::npos)
        << mode;
  }
  set_mode(scratch / "secret", 0400);
  EXPECT_EQ(error_of(read_secret_key(scratch / "secret")), "<none>");
}

TEST(SecretKeyFile, IsRefusedIfAnotherUserOwnsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const Scratch scratch;
  ASSERT_FALSE(write_secret_key(scratch / "secret", SecretKey::generate()));
  ASSERT_EQ(::chown((scratch / "secret").c_str(), 31001, 31001), 0);
  EXPECT_EQ(
      error_of(read_secret_key(scratch / "secret")),
      "cannot read the secret key '" + scratch / "secret" + "': it belongs to the user 31001");
}

TEST(SecretKeyFile, IsRefusedIfItIsMalformed) {
  const Scratch scratch;
  const std::string zeros = kZeros;
  const std::string word = "cacheshim-secret-key-1 ";
  for (const std::string& text :
       {std::string(), word, "cacheshim-secret-key-2 " + zeros, "cacheshim-public-key-1 " + zeros,
        word + " " + zeros, word + zeros + " x", word + zeros.substr(1), word + "A" + zeros,
        word + zeros.substr(0, 43),
        word + zeros.substr(0, 42) + "B=", word + zeros.substr(0, 43) + "A",
        word + zeros.substr(0, 20) + "\n" + zeros.substr(21), word + zeros + "\n" + word + zeros,
        word + zeros + std::string(200, '\n'), word + "-" + zeros.substr(1)}) {
    write_secret_file(scratch, text);
    const std::string error = error_of(read_secret_key(scratch / "secret"));
    EXPECT_TRUE(error.starts_with("cannot read the secret key '")) << text << ": " << error;
    EXPECT_EQ(error.find("AAAA"), std::string::npos) << "the error shows the key";
  }
  write_secret_file(scratch, word + zeros);  // the newline may be missing
  EXPECT_EQ(error_of(read_secret_key(scratch / "secret")), "<none>");
}

TEST(SecretKeyFile, IsRefusedIfItIsNotARegularFile) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  for (const char* name : {"fifo", ""}) {
    EXPECT_NE(error_of(read_secret_key(scratch / name)).find("not a regular file"),
              std::string::npos);
  }
  EXPECT_NE(error_of(read_secret_key(scratch / "none")).find("No such file"), std::string::npos);
}

TEST(SecretKeyFile, ContentInPlaceOfTheNameIsNotShown) {
  const std::string text = std::string("cacheshim-secret-key-1 ") + kZeros;
  for (const std::string& error :
       {error_of(read_secret_key(text)), error_of(read_public_keys({text})),
        write_secret_key(text + "/x", SecretKey::generate())->message}) {
    EXPECT_NE(error.find("'(the text of a secret key)'"), std::string::npos) << error;
    EXPECT_EQ(error.find("AAAA"), std::string::npos) << error;
  }
}

// Counts the copies of `needle` in this process's memory. Each byte of `needle` is inverted, so that `needle` is not a
// copy itself.
int copies_in_memory(const std::string& needle) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 28;  // larger mappings belong to a sanitizer
  int copies = 0;
  std::ifstream maps("/proc/self/maps");
  const UniqueFd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  for (std::string line; std::getline(maps, line);) {
    std::size_t begin = 0, end = 0;
    char mode[5] = "";
    if (std::sscanf(line.c_str(), "%zx-%zx %4s", &begin, &end, mode) != 3) continue;
    if (mode[0] != 'r' || mode[1] != 'w' || end - begin > kMostBytes) continue;
    std::string bytes(end - begin, '\0');
    const ssize_t count =
        ::pread(memory.get(), bytes.data(), bytes.size(), static_cast<off_t>(begin));
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    const auto is_inverse = [](char one, char other) { return one == static_cast<char>(~other); };
    for (auto at = bytes.begin();; ++at, ++copies) {
      at = std::search(at, bytes.end(), needle.begin(), needle.end(), is_inverse);
      if (at == bytes.end()) break;
    }
    ::sodium_memzero(bytes.data(), bytes.size());  // a later call would find copies here
  }
  return copies;
}

// Returns the content of a file with each byte inverted. Reads the bytes one by one, so that no copy of the content
// stays in memory.
std::string read_inverted(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes;
  for (char byte = 0; ::read(file.get(), &byte, 1) == 1;) bytes.push_back(static_cast<char>(~byte));
  return bytes;
}

// Runs `action` in a thread, deep in its stack, and calls `check` while the thread waits. So nothing overwrites the
// data that `action` leaves on the stack.
void run_and_check(const std::function<void()>& action, const std::function<void()>& check) {
  std::latch is_done(1);
  std::latch is_checked(1);
  std::thread thread([&] {
    const auto run_deeply = [&](const auto& self, int frames) -> void {
      std::array<char, 1024> frame;
      ::sodium_memzero(frame.data(), frame.size());
      if (frames > 0) self(self, frames - 1);
      if (frames == 0) action();
      ::sodium_memzero(frame.data(), frame.size());
    };
    run_deeply(run_deeply, 8);
    is_done.count_down();
    is_checked.wait();
  });
  is_done.wait();
  check();
  is_checked.count_down();
  thread.join();
}

TEST(SecretKeyFile, NoCopyOfTheKeyStaysInMemory) {
  const Scratch scratch;
  std::string text;  // inverted; so are the bytes that `seed` finally contains
  run_and_check([&] { ASSERT_FALSE(write_secret_key(scratch / "secret", SecretKey::generate())); },
                [&] {
                  text = read_inverted(scratch / "secret").substr(23, 40);
                  EXPECT_EQ(copies_in_memory(text), 0);
                });
  std::string seed;
  for (char digit : text) seed.push_back(static_cast<char>(~digit));
  unsigned char bytes[30];
  ASSERT_EQ(::sodium_base642bin(bytes, sizeof bytes, seed.data(), seed.size(), nullptr, nullptr,
                                nullptr, sodium_base64_VARIANT_ORIGINAL),
            0);
  seed.clear();
  for (unsigned char& byte : bytes) seed.push_back(static_cast<char>(~std::exchange(byte, '\0')));
  EXPECT_EQ(copies_in_memory(seed), 0);
  std::optional<SecretKey> key;
  run_and_check(
      [&] {
        auto read = read_secret_key(scratch / "secret");
        ASSERT_EQ(error_of(read), "<none>");
        key = std::get<SecretKey>(std::move(read));
        (void)key->sign("d", "m");
      },
      [&] {
        EXPECT_EQ(copies_in_memory(seed), 1) << "the key itself";
        key.reset();
        EXPECT_EQ(copies_in_memory(seed), 0);
      });
}

TEST(PublicKey, KeepsItsText) {
  for (const char* comment : {"", "alice", "build farm, rack 3"}) {
    const PublicKey key = SecretKey::generate().public_key(comment);
    const auto parsed = parse_public_key(to_text(key));
    ASSERT_EQ(error_of(parsed), "<none>");
    EXPECT_EQ(std::get<PublicKey>(parsed).bytes, key.bytes);
    EXPECT_EQ(std::get<PublicKey>(parsed).comment, comment);
    EXPECT_EQ(std::get<PublicKey>(parsed).id(), key.id());
  }
}

TEST(PublicKey, IsRefusedIfItIsMalformed) {
  const std::string line = to_text(SecretKey::generate().public_key());
  const std::string word = "cacheshim-public-key-1 ";
  for (const std::string& text :
       {std::string(), word, line.substr(word.size()),
        "cacheshim-secret-key-1 " + std::string(kZeros), line.substr(0, line.size() - 1),
        line + "A", word + " " + line.substr(word.size()), line + " \n", line + " a\tb",
        line + " \xff", line + " " + std::string(257, 'a')}) {
    EXPECT_NE(error_of(parse_public_key(text)), "<none>") << text;
  }
  // A point of small order: a signature could be valid for many messages.
  EXPECT_EQ(error_of(parse_public_key(word + kZeros)), "the key is not a valid ed25519 key");
}

TEST(PublicKeys, ComeFromTextsAndFiles) {
  const Scratch scratch;
  const PublicKey one = SecretKey::generate().public_key("one");
  const PublicKey two = SecretKey::generate().public_key("two");
  const PublicKey three = SecretKey::generate().public_key("three");
  scratch.write("keys", "# the builders\n\n" + to_text(two) + "\r\n" + to_text(three));
  set_mode(scratch / "keys", 0644);
  const auto keys = read_public_keys({to_text(one), scratch / "keys"});
  ASSERT_EQ(error_of(keys), "<none>");
  std::string comments;
  for (const PublicKey& key : std::get<0>(keys)) comments += key.comment + " ";
  EXPECT_EQ(comments, "one two three ");
  EXPECT_TRUE(std::get<0>(read_public_keys({})).empty());
}

TEST(PublicKeys, FilesAreRefusedWithTheReason) {
  const Scratch scratch;
  const std::string key = to_text(SecretKey::generate().public_key()) + "\n";
  const auto error_for = [&](const std::string& text, mode_t mode) {
    scratch.write("keys", text);
    set_mode(scratch / "keys", mode);
    const std::string error = error_of(read_public_keys({scratch / "keys"}));
    const std::string begin = "cannot read the public keys '" + scratch / "keys" + "': ";
    return error.starts_with(begin) ? error.substr(begin.size()) : "unexpected: " + error;
  };
  EXPECT_EQ(error_for("# none\n", 0644), "the file contains no key");
  EXPECT_EQ(error_for(key, 0664), "its group or others may write to it");
  EXPECT_EQ(error_for(key, 0646), "its group or others may write to it");
  EXPECT_EQ(error_for(key + "\n" + "x\n", 0644),
            "line 3: the key does not begin with 'cacheshim-public-key-1 '");
  EXPECT_EQ(error_for(key + std::string(std::size_t{1} << 20, '\n'), 0644), "File too large");
  EXPECT_NE(error_of(read_public_keys({scratch / "none"})).find("No such file"), std::string::npos);
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0644), 0);
  EXPECT_NE(error_of(read_public_keys({scratch / "fifo"})).find("not a regular file"),
            std::string::npos);
}

}  // namespace
}  // namespace cacheshim::remote
