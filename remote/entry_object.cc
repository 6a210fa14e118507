// SPDX-License-Identifier: Apache-2.0
#include "remote/entry_object.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/printable_text.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "store/sys/json_text.h"
#include "store/sys/same_time.h"
#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"

namespace cacheshim::remote {
namespace {

using Json = nlohmann::json;  // sorts the keys of an object
using Problem = std::optional<ObjectRefusal>;

constexpr std::string_view kMagic = "CSHIMOB1";
constexpr std::uint64_t kFormat = 1;
constexpr int kManifestDepth = 3;  // an object in an array in an object
constexpr std::size_t kMostNameBytes = 255;
constexpr std::size_t kBufferBytes = std::size_t{128} * 1024;  // the largest block of zstd
constexpr int kLevel = 3;       // zstd's default level; explicit, because the default may change
constexpr int kWindowLog = 21;  // the writer's window is 2 MiB; a reader needs as much memory
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kPermissions = 0777;

// ---- the parts of an object

struct Parts {
  KeyId signer{};
  Signature signature{};
  std::string_view manifest;
  std::string_view archive;
};

// Returns nothing if the bytes have no valid header.
std::optional<Parts> split(std::string_view object) {
  if (object.size() < kObjectHeaderBytes || !object.starts_with(kMagic)) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= std::size_t{static_cast<unsigned char>(object[kMagic.size() + i])} << (8 * i);
  }
  const std::string_view body = object.substr(kObjectHeaderBytes);
  if (length > kMostManifestBytes || length > body.size()) return std::nullopt;
  Parts parts;
  const char* const signer = object.data() + kMagic.size() + 4;
  std::memcpy(parts.signer.data(), signer, parts.signer.size());
  std::memcpy(parts.signature.data(), signer + parts.signer.size(), parts.signature.size());
  parts.manifest = body.substr(0, length);
  parts.archive = body.substr(length);
  return parts;
}

template <std::size_t size>
void append_bytes(std::string& text, const std::array<unsigned char, size>& bytes) {
  text.append(bytes.begin(), bytes.end());
}

std::string digest_of_archive(std::string_view archive) {
  std::array<unsigned char, crypto_generichash_BYTES> digest;
  const void* bytes = archive.data();
  (void)::crypto_generichash(digest.data(), digest.size(), static_cast<const unsigned char*>(bytes),
                             archive.size(), nullptr, 0);  // fails only for other lengths
  std::string text;
  append_bytes(text, digest);
  return to_hex(text);
}

// ---- the manifest's text

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

// ---- the rules for a manifest

std::string in_quotes(std::string_view name) { return fmt::format("'{}'", printable(name)); }

ObjectRefusal corrupt(std::string message) { return {Refusal::kCorrupt, std::move(message)}; }
ObjectRefusal too_large(std::string message) { return {Refusal::kTooLarge, std::move(message)}; }

bool is_printable(std::string_view text) { return printable(text) == text; }

bool is_digest(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether the path is relative, without empty, "." and ".." components, and printable UTF-8.
bool is_normal(std::string_view path) {
  if (path.empty() || path.back() == '/' || !is_printable(path)) return false;
  while (!path.empty()) {
    const std::string_view name = take_component(path);
    if (name.empty() || name == "." || name == ".." || name.size() > kMostNameBytes) return false;
  }
  return true;
}

Problem problem_of_path(const std::string& path, const ObjectLimits& limits) {
  if (path.size() > limits.path_bytes) return too_large("a path is too long");
  const auto slashes = static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
  if (slashes >= limits.depth) return too_large("the path " + in_quotes(path) + " is too deep");
  if (!is_normal(path)) return corrupt("the path " + in_quotes(path) + " is not normal");
  return std::nullopt;
}

// The order of paths in which '/' comes first, so that an object directly precedes what is below it. No path contains a
// NUL byte.
bool is_before(std::string_view left, std::string_view right) {
  const auto rank = [](char c) { return c == '/' ? 0 : int{static_cast<unsigned char>(c)}; };
  return std::lexicographical_compare(
      left.begin(), left.end(), right.begin(), right.end(),
      [&](char one, char other) { return rank(one) < rank(other); });
}
bool is_file_before(const EntryFile& left, const EntryFile& right) {
  return is_before(left.path, right.path);
}

using IsPart = std::function<bool(const std::string& path)>;

Problem problem_of_file(const EntryFile& file, const IsPart& is_part, const ObjectLimits& limits) {
  if (file.link.empty()) {
    if (file.mode > kPermissions) return corrupt(in_quotes(file.path) + " has special mode bits");
    if (!is_digest(file.digest, 32)) return corrupt(in_quotes(file.path) + " has no digest");
    return std::nullopt;
  }
  // All components of the target lead downward, so the target stays below the symlink's directory, also through other
  // symlinks of the entry.
  if (auto problem = problem_of_path(file.link, limits)) return problem;
  if (is_part(join_path(parent_path(file.path), file.link))) return std::nullopt;
  return corrupt("the symlink " + in_quotes(file.path) + " leads out of the entry");
}

Problem problem_of_sizes(const Manifest& manifest, const ObjectLimits& limits) {
  if (manifest.files.size() + manifest.directories.size() > limits.files) {
    return too_large(fmt::format("it has more than {} files", limits.files));
  }
  if (manifest.content_size > limits.content_bytes) {
    return too_large(fmt::format("its files have more than {} bytes", limits.content_bytes));
  }
  std::uint64_t left = manifest.content_size;
  for (const EntryFile& file : manifest.files) {
    if (file.size > left) return corrupt("its sizes contradict each other");
    left -= file.size;
  }
  if (left > 0) return corrupt("its sizes contradict each other");
  return std::nullopt;
}

// In the order of is_before(), the first path after an object is below the object, if any path is. So it is enough to
// compare neighbors.
Problem problem_of_order(const Manifest& manifest) {
  std::vector<std::string_view> paths(manifest.directories.begin(), manifest.directories.end());
  if (!std::is_sorted(manifest.files.begin(), manifest.files.end(), is_file_before) ||
      !std::is_sorted(paths.begin(), paths.end(), is_before)) {
    return corrupt("its paths are not sorted");
  }
  for (const EntryFile& file : manifest.files) paths.push_back(file.path);
  std::sort(paths.begin(), paths.end(), is_before);
  for (std::size_t i = 1; i < paths.size(); ++i) {
    if (paths[i] == paths[i - 1])
      return corrupt("the path " + in_quotes(paths[i]) + " is repeated");
    if (is_at_or_below(paths[i], paths[i - 1])) {
      return corrupt(in_quotes(paths[i - 1]) + " is not a directory with files, but has " +
                     in_quotes(paths[i]));
    }
  }
  return std::nullopt;
}

// Returns which rule the manifest breaks. `is_part`: whether a path belongs to the entry.
Problem problem_of(const Manifest& manifest, const IsPart& is_part, const ObjectLimits& limits) {
  if (auto problem = problem_of_path(manifest.unit, limits)) return problem;
  for (const std::string& name : {manifest.facts.node, manifest.facts.profile}) {
    if (name.size() > kMostNameBytes || !is_printable(name))
      return corrupt("a name in it is malformed");
  }
  if (!is_digest(manifest.archive_digest, 64)) return corrupt("it has no digest of its archive");
  if (auto problem = problem_of_sizes(manifest, limits)) return problem;
  const auto problem_at = [&](const std::string& path) -> Problem {
    if (auto problem = problem_of_path(path, limits)) return problem;
    if (!is_part(path)) return corrupt("the path " + in_quotes(path) + " is not part of the entry");
    return std::nullopt;
  };
  for (const std::string& path : manifest.directories) {
    if (auto problem = problem_at(path)) return problem;
  }
  for (const EntryFile& file : manifest.files) {
    if (auto problem = problem_at(file.path)) return problem;
    if (auto problem = problem_of_file(file, is_part, limits)) return problem;
  }
  return problem_of_order(manifest);
}

// ---- contents

// The digest of a file's content, as digest_of() computes it.
class ContentDigest {
 public:
  ContentDigest() {
    (void)XXH3_128bits_reset(&state_);
  }  // fails only without a state, as does an update
  void add(std::string_view bytes) {
    (void)XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_{};
};

class Compressor {
 public:
  // `content_bytes`: how many bytes will be added.
  explicit Compressor(std::uint64_t content_bytes)
      : context_(::ZSTD_createCCtx()), out_(kBufferBytes, '\0') {
    if (!context_) throw std::bad_alloc();
    // These functions fail only for values out of range.
    (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
    (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_windowLog, kWindowLog);
    (void)::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 0);
    (void)::ZSTD_CCtx_setPledgedSrcSize(context_.get(), content_bytes);
  }
  Status add(std::string_view bytes) { return compress(bytes, ZSTD_e_continue); }
  Status finish() { return compress({}, ZSTD_e_end); }
  std::string take() { return std::move(archive_); }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { (void)::ZSTD_freeCCtx(context); }
  };

  Status compress(std::string_view bytes, ZSTD_EndDirective directive) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer out{out_.data(), out_.size(), 0};
      const std::size_t left = ::ZSTD_compressStream2(context_.get(), &out, &in, directive);
      if (::ZSTD_isError(left) != 0) return Errno(ENOMEM);
      archive_.append(out_.data(), out.pos);
      if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
    }
  }

  std::unique_ptr<ZSTD_CCtx, Free> context_;
  std::string out_;
  std::string archive_;
};

class Decompressor {
 public:
  // `archive` must stay valid.
  explicit Decompressor(std::string_view archive)
      : context_(::ZSTD_createDCtx()), in_{archive.data(), archive.size(), 0} {
    if (!context_) throw std::bad_alloc();
    (void)::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLog);
  }
  // Fills `buffer`. Errors: EBADMSG if the archive is malformed or ends before.
  Status read(std::span<char> buffer) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos < out.size) CACHESHIM_CHECK(step(out));
    return {};
  }
  // Whether the archive ends here.
  bool is_at_end() {
    char more = 0;
    ZSTD_outBuffer out{&more, 1, 0};
    while (!is_ended_ && out.pos == 0) {
      if (!step(out)) return false;
    }
    return out.pos == 0 && in_.pos == in_.size;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { (void)::ZSTD_freeDCtx(context); }
  };

  Status step(ZSTD_outBuffer& out) {
    if (is_ended_) return Errno(EBADMSG);
    const std::size_t read = in_.pos;
    const std::size_t written = out.pos;
    const std::size_t left = ::ZSTD_decompressStream(context_.get(), &out, &in_);
    if (::ZSTD_isError(left) != 0) return Errno(EBADMSG);
    is_ended_ = left == 0;
    const bool has_moved = in_.pos > read || out.pos > written || is_ended_;
    return has_moved ? Status() : Errno(EBADMSG);  // no progress: the archive is cut off
  }

  std::unique_ptr<ZSTD_DCtx, Free> context_;
  ZSTD_inBuffer in_;
  bool is_ended_ = false;
};

// ---- pack

int errno_of(const ObjectRefusal& problem) {
  return problem.reason == Refusal::kTooLarge ? EFBIG : EINVAL;
}

// An object of the entry, as it was when it was listed.
struct Listed {
  std::string path;
  struct stat st {};
  std::string link;

  // Whether nothing has changed. No process can set the change time (inode(7)).
  friend bool operator==(const Listed& one, const Listed& other) {
    return one.path == other.path && one.link == other.link && one.st.st_dev == other.st.st_dev &&
           one.st.st_ino == other.st.st_ino && one.st.st_mode == other.st.st_mode &&
           one.st.st_size == other.st.st_size && is_same_time(one.st.st_mtim, other.st.st_mtim) &&
           is_same_time(one.st.st_ctim, other.st.st_ctim);
  }
};

class Packer {
 public:
  Packer(const EntrySource& source, const ObjectLimits& limits)
      : source_(source), limits_(limits) {}

  // Sets the parts of the manifest that describe the files. Returns the archive.
  Result<std::string> run(Manifest& manifest) {
    CACHESHIM_TRY(listed, list());
    for (const Listed& object : listed) CACHESHIM_CHECK(count(object, manifest));
    Compressor compressor(manifest.content_size);
    for (const Listed& object : listed) CACHESHIM_CHECK(add(object, manifest, compressor));
    CACHESHIM_CHECK(compressor.finish());
    CACHESHIM_TRY(again, list());
    if (again != listed) return fail(ESTALE, source_.unit, "a file of it has changed meanwhile");
    return compressor.take();
  }

  ObjectError error(Errno error) const {
    const std::string_view why =
        why_.empty() ? std::strerror(error.code()) : std::string_view(why_);
    std::string text = fmt::format("cannot pack {}: ", in_quotes(source_.unit));
    if (at_ != source_.unit) text += fmt::format("{}: ", in_quotes(at_));
    return {error.code(), text.append(why)};
  }

 private:
  Errno fail(int code, const std::string& path, std::string why) {
    at_ = path;
    why_ = std::move(why);
    return Errno(code);
  }

  // Returns the files, symlinks and empty directories of the entry, sorted.
  Result<std::vector<Listed>> list() {
    std::vector<Listed> objects;
    for (const std::string& path : source_.paths) CACHESHIM_CHECK(list_at(path, objects));
    std::sort(objects.begin(), objects.end(), [](const Listed& one, const Listed& other) {
      return is_before(one.path, other.path);
    });
    return objects;
  }

  Status list_at(const std::string& path, std::vector<Listed>& objects) {
    at_ = path;
    CACHESHIM_CHECK(check_path(path));
    CACHESHIM_TRY(parent,
                  sys::open_beneath(source_.base, parent_path(path), O_RDONLY | O_DIRECTORY));
    CACHESHIM_TRY(is_dir, list_object(parent.get(), std::string(base_name(path)), path, objects));
    if (!is_dir) return {};
    return walk_tree(source_.base, path, [&](const WalkedDirectory& directory) -> Status {
      if (directory.entries.empty()) {
        CACHESHIM_TRY(st, sys::stat_fd(directory.fd));
        return put({directory.path, st, ""}, objects);
      }
      for (const sys::DirEntry& entry : directory.entries) {
        at_ = join_path(directory.path, entry.name);
        CACHESHIM_TRY(is_below, list_object(directory.fd, entry.name, at_, objects));
        if (is_below) directory.further.push_back(entry.name);
      }
      return {};
    });
  }

  // Adds a file or a symlink. Returns true for a directory, which it does not add.
  Result<bool> list_object(int directory, const std::string& name, const std::string& path,
                           std::vector<Listed>& objects) {
    CACHESHIM_TRY(fd, sys::open_beneath(directory, name, O_PATH | O_NOFOLLOW));
    CACHESHIM_CHECK(sys::renew_attributes(fd.get()));
    CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
    if (S_ISDIR(st.st_mode)) return true;
    Listed object{path, st, ""};
    if (S_ISLNK(st.st_mode)) {
      CACHESHIM_TRY(target, sys::read_link_at(fd.get(), ""));
      object.link = std::move(target);
    } else if (!S_ISREG(st.st_mode)) {
      return fail(EINVAL, path, "it is not a file, a directory or a symlink");
    }
    CACHESHIM_CHECK(put(std::move(object), objects));
    return false;
  }

  Status check_path(const std::string& path) {
    const auto problem = problem_of_path(path, limits_);
    if (!problem) return {};
    return fail(errno_of(*problem), path, problem->message);
  }

  Status put(Listed object, std::vector<Listed>& objects) {
    CACHESHIM_CHECK(check_path(object.path));
    objects.push_back(std::move(object));
    if (objects.size() <= limits_.files) return {};
    return fail(EFBIG, source_.unit, fmt::format("it has more than {} files", limits_.files));
  }

  Status count(const Listed& object, Manifest& manifest) {
    if (!S_ISREG(object.st.st_mode)) return {};
    const auto size = static_cast<std::uint64_t>(object.st.st_size);
    if (size > limits_.content_bytes - manifest.content_size) {
      return fail(EFBIG, source_.unit,
                  fmt::format("its files have more than {} bytes", limits_.content_bytes));
    }
    manifest.content_size += size;
    return {};
  }

  Status add(const Listed& object, Manifest& manifest, Compressor& compressor) {
    at_ = object.path;
    if (S_ISDIR(object.st.st_mode)) {
      manifest.directories.push_back(object.path);
      return {};
    }
    EntryFile file;
    file.path = object.path;
    file.link = object.link;
    if (S_ISREG(object.st.st_mode)) {
      file.size = static_cast<std::uint64_t>(object.st.st_size);
      file.mode = object.st.st_mode & kPermissions;
      CACHESHIM_TRY(digest, read(object, compressor));
      file.digest = std::move(digest);
    }
    manifest.files.push_back(std::move(file));
    return {};
  }

  // Adds the file's content to the archive. Returns the content's digest.
  Result<std::string> read(const Listed& object, Compressor& compressor) {
    constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
    auto file = sys::open_beneath(source_.base, object.path, kFlags | O_NOATIME);
    if (file.failed_with(EPERM)) file = sys::open_beneath(source_.base, object.path, kFlags);
    if (!file) return file.error();
    CACHESHIM_TRY(st, sys::stat_fd(file->get()));
    if (Listed{object.path, st, ""} != object)
      return fail(ESTALE, object.path, "it has changed meanwhile");
    ContentDigest digest;
    for (auto left = static_cast<std::uint64_t>(st.st_size); left > 0;) {
      const std::size_t part = std::min<std::uint64_t>(left, buffer_.size());
      CACHESHIM_CHECK(fill(file->get(), part));
      digest.add({buffer_.data(), part});
      CACHESHIM_CHECK(compressor.add({buffer_.data(), part}));
      left -= part;
    }
    return digest.text();
  }

  // Reads `count` bytes, so that the parts that the compressor gets depend only on the sizes of the files.
  Status fill(int file, std::size_t count) {
    for (std::size_t at = 0; at < count;) {
      const ssize_t got = ::read(file, buffer_.data() + at, count - at);
      if (got == -1 && errno == EINTR) continue;
      if (got == -1) return Errno::last();
      if (got == 0) return fail(ESTALE, at_, "it has changed meanwhile");
      at += static_cast<std::size_t>(got);
    }
    return {};
  }

  const EntrySource& source_;
  const ObjectLimits& limits_;
  std::string buffer_ = std::string(kBufferBytes, '\0');
  std::string at_;   // the path at which the packer works
  std::string why_;  // why it failed, unless errno says it
};

// ---- unpack

// Creates the files of an entry. The destructor removes them, unless run() has succeeded.
class Unpacker {
 public:
  Unpacker(std::string_view archive, int target) : archive_(archive), target_(target) {}
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker() {
    for (const std::string& name : made_)
      (void)sys::remove_tree(target_, name);  // the caller learns the first error
  }

  Status run(const Manifest& manifest) {
    for (const EntryFile& file : manifest.files) {
      at_ = file.path;
      CACHESHIM_CHECK(enter(parent_path(file.path)));
      CACHESHIM_CHECK(file.link.empty() ? make_file(file) : make_link(file));
    }
    for (const std::string& path : manifest.directories) {
      at_ = path;
      CACHESHIM_CHECK(enter(path));
    }
    at_ = manifest.unit;
    if (!archive_.is_at_end()) return Errno(EBADMSG);
    made_.clear();
    return {};
  }
  const std::string& at() const { return at_; }

 private:
  // Sets directory_ to the directory `path`, which it creates.
  Status enter(std::string_view path) {
    if (directory_ && path == path_) return {};
    CACHESHIM_TRY(directory, sys::open_beneath(target_, "", O_PATH | O_DIRECTORY));
    for (std::string_view rest = path; !rest.empty();) {
      const bool is_top = rest.size() == path.size();
      const std::string name(take_component(rest));
      const Status made = sys::make_dir_at(directory.get(), name, 0700);
      if (!made && !made.failed_with(EEXIST)) return made;
      if (made && is_top) made_.push_back(name);
      CACHESHIM_TRY(next,
                    sys::open_beneath(directory.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
      if (made) CACHESHIM_CHECK(sys::set_mode(next.get(), kDirectoryMode));
      directory = std::move(next);
    }
    directory_ = std::move(directory);
    path_ = path;
    return {};
  }

  Status make_link(const EntryFile& file) {
    const std::string name(base_name(file.path));
    CACHESHIM_CHECK(sys::make_symlink_at(file.link, directory_.get(), name));
    if (path_.empty()) made_.push_back(name);
    return {};
  }

  Status make_file(const EntryFile& file) {
    const std::string name(base_name(file.path));
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    CACHESHIM_TRY(made, sys::open_beneath(directory_.get(), name, kFlags, 0600));
    if (path_.empty()) made_.push_back(name);
    ContentDigest digest;
    for (std::uint64_t left = file.size; left > 0;) {
      const std::span<char> part(buffer_.data(), std::min<std::uint64_t>(left, buffer_.size()));
      CACHESHIM_CHECK(archive_.read(part));
      digest.add({part.data(), part.size()});
      CACHESHIM_CHECK(sys::write_all(made.get(), {part.data(), part.size()}));
      left -= part.size();
    }
    if (digest.text() != file.digest) return Errno(EBADMSG);
    return sys::set_mode(made.get(), file.mode & kPermissions);
  }

  Decompressor archive_;
  const int target_;
  std::string buffer_ = std::string(kBufferBytes, '\0');
  std::vector<std::string> made_;  // the created names in the target
  UniqueFd directory_;             // the directory `path_` below the target
  std::string path_;
  std::string at_;
};

}  // namespace

std::uint64_t most_object_bytes(const ObjectLimits& limits) {
  return kObjectHeaderBytes + kMostManifestBytes + ::ZSTD_compressBound(limits.content_bytes);
}

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

std::string sign_object(std::string_view manifest, std::string_view archive, const SecretKey& key) {
  std::string object;
  object.reserve(kObjectHeaderBytes + manifest.size() + archive.size());
  object = kMagic;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    object.push_back(static_cast<char>((manifest.size() >> shift) & 0xff));
  }
  append_bytes(object, key.public_key().id());
  append_bytes(object, key.sign(kObjectDomain, manifest));
  return object.append(manifest).append(archive);
}

std::variant<std::string, ObjectError> pack(const EntrySource& source, const EntryFacts& facts,
                                            const SecretKey& key, const ObjectLimits& limits) {
  const auto refused = [&](int code, std::string_view why) {
    return ObjectError{code, fmt::format("cannot pack {}: {}", in_quotes(source.unit), why)};
  };
  Manifest manifest;
  manifest.unit = source.unit;
  manifest.facts = facts;
  Packer packer(source, limits);
  const auto archive = packer.run(manifest);
  if (!archive) return packer.error(archive.error());
  manifest.archive_size = archive->size();
  manifest.archive_digest = digest_of_archive(*archive);
  const auto is_part = [&](const std::string& path) {
    return std::any_of(source.paths.begin(), source.paths.end(),
                       [&](const std::string& top) { return is_at_or_below(path, top); });
  };
  if (const auto problem = problem_of(manifest, is_part, limits)) {
    return refused(errno_of(*problem), problem->message);
  }
  const std::string text = to_text(manifest);
  if (text.size() > kMostManifestBytes) return refused(EFBIG, "its manifest is too long");
  return sign_object(text, *archive, key);
}

std::variant<Manifest, ObjectRefusal> open_object(std::string_view object,
                                                  const ExpectedEntry& expected,
                                                  std::span<const PublicKey> allowed,
                                                  const ObjectLimits& limits) {
  const auto parts = split(object);
  if (!parts) return corrupt("it is not an object of the remote tier, or is cut off");
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
    return corrupt("its archive has changed since it was signed");
  }
  return parsed;
}

std::optional<ObjectError> unpack(std::string_view object, const Manifest& manifest, int target) {
  const auto failed = [&](Errno error, const std::string& path) {
    const std::string_view why = error == EBADMSG
                                     ? "the archive does not contain what the manifest states"
                                     : std::string_view(std::strerror(error.code()));
    return ObjectError{error.code(), fmt::format("cannot unpack {}: {}", in_quotes(path), why)};
  };
  const auto parts = split(object);
  if (!parts || parts->archive.size() != manifest.archive_size)
    return failed(Errno(EBADMSG), manifest.unit);
  const auto left = sys::list_dir(target);
  if (!left) return failed(left.error(), manifest.unit);
  if (!left->empty()) return failed(Errno(ENOTEMPTY), manifest.unit);
  Unpacker unpacker(parts->archive, target);
  const Status unpacked = unpacker.run(manifest);
  if (!unpacked) return failed(unpacked.error(), unpacker.at());
  return std::nullopt;
}

}  // namespace cacheshim::remote
