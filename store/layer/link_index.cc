// SPDX-License-Identifier: Apache-2.0
#include "store/layer/link_index.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::string_view kCopy = "copy.";
constexpr std::string_view kNone = "none.";

}  // namespace

Result<std::string> LinkIndex::key_of(int object, std::size_t lower) {
  Result<std::string> identity = sys::file_handle(object);
  if (!identity) {
    CACHESHIM_TRY(st, sys::stat_fd(object));
    identity = fmt::format("{}:{}", st.st_dev, st.st_ino);
  }
  const XXH128_hash_t hash = XXH3_128bits_withSeed(identity->data(), identity->size(), lower);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string LinkIndex::file_name(const std::string& key, const File& file) {
  return fmt::format("{}{}.{}", file.has_copy ? kCopy : kNone, key, file.names_left);
}

void LinkIndex::clear() {
  work_ = -1;
  directory_.reset();
  files_.clear();
  keys_.clear();
}

Status LinkIndex::load(int work) {
  clear();
  work_ = work;
  auto directory = sys::open_beneath(work, kDirectory, O_RDONLY | O_DIRECTORY);
  if (directory.failed_with(ENOENT)) return {};
  if (!directory) return directory.error();
  directory_ = *std::move(directory);
  CACHESHIM_TRY(entries, sys::list_dir(directory_.get()));
  for (const sys::DirEntry& entry : entries) load_file(entry.name);
  return {};
}

// Skips an unreadable record: the file's names in the layer and in the base are then no longer links
// to the same file.
void LinkIndex::load_file(const std::string& name) {
  File file;
  file.has_copy = name.starts_with(kCopy);
  const auto dot = name.rfind('.');
  if (dot <= kCopy.size()) return;
  const char* const end = name.data() + name.size();
  if (std::from_chars(name.data() + dot + 1, end, file.names_left).ptr != end) return;
  const auto st = sys::stat_at(directory_.get(), name);
  if (!st) return;
  const std::string key = name.substr(kCopy.size(), dot - kCopy.size());
  if (file.has_copy) {
    file.device = st->st_dev;
    file.inode = st->st_ino;
    keys_[file.inode] = key;
  }
  if (file.has_copy || !files_.contains(key)) files_[key] = file;
}

const LinkIndex::File* LinkIndex::find(const std::string& key) const {
  const auto found = files_.find(key);
  return found == files_.end() ? nullptr : &found->second;
}

Result<UniqueFd> LinkIndex::open_copy(const std::string& key, int flags) const {
  return sys::open_beneath(directory_.get(), file_name(key, files_.at(key)), flags);
}

Result<struct stat> LinkIndex::stat_copy(const std::string& key) const {
  CACHESHIM_TRY(st, sys::stat_at(directory_.get(), file_name(key, files_.at(key))));
  correct_links(st);
  return st;
}

void LinkIndex::correct_links(struct stat& st) const {
  if (st.st_nlink < 1 || keys_.empty()) return;
  const auto key = keys_.find(st.st_ino);
  if (key == keys_.end()) return;
  const File& file = files_.at(key->second);
  if (file.device != st.st_dev) return;
  st.st_nlink += file.names_left;
  --st.st_nlink;  // the link in the index is not a visible name
}

Status LinkIndex::ensure_directory() {
  if (directory_) return {};
  CACHESHIM_CHECK(sys::ensure_dir_at(work_, kDirectory, 0700));
  CACHESHIM_TRY(directory, sys::open_beneath(work_, kDirectory, O_RDONLY | O_DIRECTORY));
  directory_ = std::move(directory);
  return {};
}

Status LinkIndex::add_copy(const std::string& key, nlink_t names, int directory,
                           const std::string& name) {
  CACHESHIM_CHECK(ensure_directory());
  CACHESHIM_TRY(st, sys::stat_at(directory, name));
  const File* known = find(key);
  const std::string record = known != nullptr ? file_name(key, *known) : std::string();
  const File file{known != nullptr ? known->names_left : names, true, st.st_dev, st.st_ino};
  CACHESHIM_CHECK(sys::link_at(directory, name, directory_.get(), file_name(key, file)));
  // if this fails, an empty file remains, which is harmless
  if (!record.empty()) (void)sys::unlink_at(directory_.get(), record);
  files_[key] = file;
  keys_[file.inode] = key;
  return {};
}

Status LinkIndex::link_copy(const std::string& key, int directory, const std::string& name) const {
  return sys::link_at(directory_.get(), file_name(key, files_.at(key)), directory, name);
}

Status LinkIndex::take_name(const std::string& key, nlink_t names) {
  const auto known = files_.find(key);
  if (known != files_.end()) {
    const nlink_t left = known->second.names_left;
    return set_names_left(key, known->second, left > 0 ? left - 1 : 0);
  }
  CACHESHIM_CHECK(ensure_directory());
  File file;
  file.names_left = names - 1;
  CACHESHIM_TRY(
      made, sys::open_beneath(directory_.get(), file_name(key, file), O_WRONLY | O_CREAT, 0600));
  files_[key] = file;
  return {};
}

Status LinkIndex::set_names_left(const std::string& key, File& file, nlink_t names_left) {
  File changed = file;
  changed.names_left = names_left;
  CACHESHIM_CHECK(sys::rename_at(directory_.get(), file_name(key, file), directory_.get(),
                                 file_name(key, changed)));
  file = changed;
  return {};
}

bool LinkIndex::forget_if_gone(dev_t device, ino_t inode) {
  const auto key = keys_.find(inode);
  if (key == keys_.end()) return false;
  const auto file = files_.find(key->second);
  if (file->second.device != device || file->second.names_left > 0) return false;
  const std::string name = file_name(file->first, file->second);
  const auto st = sys::stat_at(directory_.get(), name);
  if (!st || st->st_nlink > 1) return false;
  if (!sys::unlink_at(directory_.get(), name)) return false;
  files_.erase(file);
  keys_.erase(key);
  return true;
}

}  // namespace cacheshim
