// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

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
#include "store/sys/sys.h"

namespace cacheshim::remote {
namespace {

constexpr mode_t kDirectoryMode = 0755;

// Creates the files of an entry. The destructor removes them, unless run() has succeeded.
class Unpacker {
 public:
  Unpacker(std::string_view archive, int target) : archive_(archive), target_(target) {}
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker() {
    for (const std::string& name : made_)
      (void)sys::remove_tree(target_, name);  // the caller gets the error of run()
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
  // Creates the directory `path` and its parents, unless they exist, and sets directory_ to it.
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

std::optional<ObjectError> unpack(std::string_view object, const Manifest& manifest, int target) {
  const auto failed = [&](Errno error, const std::string& path) {
    const std::string_view why = error == EBADMSG
                                     ? "the archive does not contain what the manifest states"
                                     : std::string_view(std::strerror(error.code()));
    return ObjectError{error.code(), fmt::format("cannot unpack {}: {}", in_quotes(path), why)};
  };
  const auto parts = split_object(object);
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
