// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "remote/signing_keys.h"
#include "store/sys/paths.h"

// The objects of the remote tier. An object holds one entry of a store, is signed, and never changes.
//
//   offset  bytes
//        0      8  "CSHIMOB1"
//        8      4  the length M of the manifest, little-endian; at most kMostManifestBytes
//       12      8  the id of the key that signed (PublicKey::id())
//       20     64  ed25519 signature over kObjectDomain, a NUL byte and the manifest
//       84      M  the manifest: JSON without white space, with sorted keys
//     84+M         the archive: one zstd frame (RFC 8878) with the contents of the files, in the manifest's order
//
// The manifest is an object with the members
//   archive_digest  the BLAKE2b-256 digest (crypto_generichash) of the archive, in hex
//   archive_size, content_size   the bytes of the archive before and after decompression
//   build_ms, generation, node, profile, published, unit    see EntryFacts
//   directories     the paths of the empty directories
//   files           {mode, path, size, xxh3} for each regular file, {link, path} for each symlink
//   format          1
// Both arrays are sorted by path, in the order in which '/' comes before all other characters. A manifest has
// one form: if it differs in any byte from what to_text() writes, readers refuse it.
//
// A reader must trust neither the engine nor the network. So it verifies the signature before it parses the manifest,
// and the archive's digest before it decompresses anything. All functions are thread-safe. They throw only
// std::bad_alloc, and std::runtime_error if libsodium cannot start.
namespace cacheshim::remote {

inline constexpr std::size_t kObjectHeaderBytes = 84;
inline constexpr std::size_t kMostManifestBytes = std::size_t{1} << 20;
inline constexpr std::string_view kObjectDomain = "cacheshim entry object 1";

// What a reader accepts and a writer produces.
struct ObjectLimits {
  std::uint64_t content_bytes = std::uint64_t{256} << 20;  // of all files together
  std::size_t files = 4096;                                // files, symlinks and empty directories
  std::size_t depth = kMostBaseDepth;                      // components of a path
  std::size_t path_bytes = kMostBasePathBytes;             // of a path, and of a symlink's target
};
// Returns the size of the largest object within the limits.
std::uint64_t most_object_bytes(const ObjectLimits& limits);

// What the writer states about an entry besides its files.
struct EntryFacts {
  std::uint64_t generation = 0;  // an administrator raises it to invalidate all older objects
  std::string node;     // the machine that built the entry; printable UTF-8 of at most 255 bytes
  std::string profile;  // the profile's name; the limits of `node` apply
  std::uint64_t published = 0;  // seconds since 1970
  std::uint64_t build_ms = 0;   // how long the build took; 0: unknown
};

// A regular file or a symlink.
struct EntryFile {
  std::string path;        // relative to the store
  std::uint64_t size = 0;  // bytes; 0 for a symlink
  mode_t mode = 0;         // permission bits, at most 0777; 0 for a symlink
  std::string digest;      // xxh3-128, as digest_of() returns it; "" for a symlink
  std::string link;        // the target of a symlink; "" for a regular file
};

struct Manifest {
  std::string unit;  // the entry's name in the store (EntryRef::unit())
  EntryFacts facts;
  std::vector<EntryFile> files;
  std::vector<std::string> directories;  // the paths of the empty directories
  std::uint64_t content_size = 0;        // bytes
  std::uint64_t archive_size = 0;        // bytes
  std::string archive_digest;
};
// Returns the manifest's form in the object. Requires: all text is UTF-8.
std::string to_text(const Manifest& manifest);

// Why an entry was not packed or unpacked.
struct ObjectError {
  int code;             // an errno
  std::string message;  // one line: what, where, why
};

// An entry in a store.
struct EntrySource {
  int base;                        // the store's directory
  std::string unit;                // as Manifest::unit
  std::vector<std::string> paths;  // the directory, or the files (BaseUnit::paths)
};

// Returns the object of an entry. With the same version of libzstd, equal files, facts and keys give equal objects:
// owners, times and the order of the directories' entries do not matter. Follows no symlinks. Keeps the permission bits
// of files, and not those of directories. Does not change access times if this process may open the files with
// O_NOATIME. Needs memory for about twice the archive. Errors: ESTALE, or a system call's error such as ENOENT, if a
// file changes during the call; EFBIG over a limit; EINVAL if the entry contains anything but files, directories and
// symlinks, or if open_object() would refuse a path, a target or a fact; otherwise those of the system calls.
std::variant<std::string, ObjectError> pack(const EntrySource& source, const EntryFacts& facts,
                                            const SecretKey& key, const ObjectLimits& limits = {});

// Returns an object of these parts. For pack(), and for tests of the functions that read objects.
std::string sign_object(std::string_view manifest, std::string_view archive, const SecretKey& key);

// What the reader asked the engine for.
struct ExpectedEntry {
  std::string unit;
  std::uint64_t generation = 0;
  // Returns whether a path that is neither `unit` nor below it belongs to the entry. For an entry of several files;
  // empty if all paths are at or below `unit`.
  std::function<bool(const std::string& path)> is_part = {};
};

enum class Refusal {
  kCorrupt,  // not an object, or changed since it was signed, or its signer has broken the rules of the format
  kUntrusted,  // signed by a key that is not allowed, or the signature is wrong
  kStale,      // authentic, but of another unit, generation or format
  kTooLarge,   // authentic, but over a limit
};

struct ObjectRefusal {
  Refusal reason;
  std::string message;  // one line, without the name of the object
};

// Verifies an object and returns its manifest. Does not decompress the archive.
std::variant<Manifest, ObjectRefusal> open_object(std::string_view object,
                                                  const ExpectedEntry& expected,
                                                  std::span<const PublicKey> allowed,
                                                  const ObjectLimits& limits = {});

// Creates the entry's files below `target`, an empty directory that no other process changes: a file `triton/KEY/a` of
// the manifest is then `triton/KEY/a` below `target`. Directories get mode 0755, and files the mode in the manifest,
// whatever the umask is. Does not sync. Needs about 3 MiB of memory, whatever the size of the entry. If it fails,
// removes what it has created. Requires: open_object() has returned `manifest` for the same bytes. With another
// manifest, it still writes nothing outside `target`, and to no file more than the file's size in the manifest.
// Errors: ENOTEMPTY; EBADMSG if the archive does not contain what the manifest states; otherwise those of the system
// calls, for example ENOSPC.
[[nodiscard]] std::optional<ObjectError> unpack(std::string_view object, const Manifest& manifest,
                                                int target);

}  // namespace cacheshim::remote
