// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/result.h"
#include "common/unique_fd.h"
#include "remote/content_digest.h"
#include "remote/entry_archive.h"
#include "remote/entry_object.h"
#include "remote/manifest_rules.h"
#include "remote/object_layout.h"
#include "store/sys/same_time.h"
#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"

namespace cacheshim::remote {
namespace {

int errno_of(const ObjectRefusal& problem) {
  return problem.reason == Refusal::kTooLarge ? EFBIG : EINVAL;
}

// A file, a symlink or an empty directory of the entry, with its attributes when it was listed.
struct Listed {
  std::string path;
  struct stat st {};
  std::string link;

  // Returns whether nothing has changed between two lists. No process can set the change time (inode(7)), so a change
  // is detected even if the modification time is set back.
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
    CACHESHIM_CHECK(sys::revalidate_attributes(fd.get()));
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

  // Fills `count` bytes of buffer_ even if read(2) returns fewer, because the compressor's output depends on how the
  // content is divided, and equal files must give equal archives.
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
  std::string at_;   // the path that is being packed, for error texts
  std::string why_;  // why packing failed; "" if errno says it
};

}  // namespace

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

}  // namespace cacheshim::remote
