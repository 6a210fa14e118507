// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/origin_log.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/core.h>
#include <xxhash.h>

#include <array>
#include <charconv>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::size_t kRemovalFields = 1;
constexpr std::size_t kRecordFields = 4;
constexpr std::size_t kFewLines = 1024;  // append() rewrites the file only if it has more lines

// Stores the hexadecimal numbers of the line in `fields`. Returns how many there are; 0 if the line is malformed.
std::size_t parse(std::string_view line, std::array<std::uint64_t, kRecordFields>& fields) {
  std::size_t count = 0;
  for (const char* at = line.data(); count < fields.size(); ++at) {
    const char* const end = line.data() + line.size();
    const auto [rest, error] = std::from_chars(at, end, fields[count++], 16);
    if (error != std::errc()) return 0;
    if (rest == end) return count;
    if (*rest != ' ') return 0;
    at = rest;
  }
  return 0;
}

}  // namespace

std::uint64_t OriginLog::handle_of(int directory, const std::string& name) {
  const auto handle = sys::file_handle(directory, name);
  return handle ? XXH3_64bits(handle->data(), handle->size()) : 0;
}

std::string OriginLog::line_of(ino_t inode, const Record& record) {
  return fmt::format("{:x} {:x} {:x} {:x}\n", inode, record.handle, record.lower, record.origin);
}

void OriginLog::apply(std::string_view line, Records& records) {
  std::array<std::uint64_t, kRecordFields> fields;
  const std::size_t count = parse(line, fields);
  if (count == kRemovalFields) records.erase(fields[0]);
  if (count == kRecordFields) records[fields[0]] = {fields[1], fields[2], fields[3]};
}

void OriginLog::clear() {
  const MutexLock file_lock(file_mutex_);
  const WriterLock lock(mutex_);
  records_.clear();
  count_ = 0;
  pending_.clear();
  work_ = -1;
  file_.reset();
  size_ = 0;
  lines_ = 0;
  is_unsynced_ = false;
}

void OriginLog::begin_load(int work) {
  clear();
  const MutexLock file_lock(file_mutex_);
  work_ = work;
  const auto text = sys::read_file(work, kFile);
  if (!text) return;  // no readable file: the copies are shown with their own inode numbers
  std::string_view rest = *text;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    apply(rest.substr(0, end), pending_);
    rest.remove_prefix(end + 1);
    ++lines_;
  }
  if (!rest.empty()) ++lines_;  // the last line is incomplete, so end_load() must rewrite the file
}

void OriginLog::found(int directory, const std::string& name, ino_t inode) {
  const MutexLock file_lock(file_mutex_);
  const auto pending = pending_.find(inode);
  if (pending == pending_.end()) return;
  const bool is_same = pending->second.handle == handle_of(directory, name);
  const WriterLock lock(mutex_);
  if (is_same && lowers_.device_of(pending->second.lower)) records_.insert(*pending);
  count_ = records_.size();
}

void OriginLog::end_load() {
  const MutexLock file_lock(file_mutex_);
  pending_.clear();
  if (lines_ != count_) rewrite();
}

std::optional<OriginLog::Origin> OriginLog::find(ino_t inode) const {
  if (is_empty()) return std::nullopt;
  const ReaderLock lock(mutex_);
  const auto found = records_.find(inode);
  if (found == records_.end()) return std::nullopt;
  return Origin{lowers_.device_of(found->second.lower).value_or(0), found->second.origin};
}

std::optional<ino_t> OriginLog::add(int directory, const std::string& name,
                                    const struct stat& base) {
  const auto lower = lowers_.find_device(base.st_dev);
  const auto copy = sys::stat_at(directory, name);
  // no lower: `base` is on a file system that is mounted inside a lower
  if (!lower || !copy) return std::nullopt;
  put_back(copy->st_ino, {handle_of(directory, name), *lower, base.st_ino});
  return copy->st_ino;
}

void OriginLog::put_back(ino_t inode, const Record& record) {
  const MutexLock file_lock(file_mutex_);
  {
    const WriterLock lock(mutex_);
    records_[inode] = record;
    count_ = records_.size();
  }
  append(line_of(inode, record));
}

std::optional<OriginLog::Record> OriginLog::remove(ino_t inode) {
  if (is_empty()) return std::nullopt;
  {
    const ReaderLock lock(mutex_);
    if (!records_.contains(inode)) return std::nullopt;
  }
  const MutexLock file_lock(file_mutex_);
  const auto taken = [&] {
    const WriterLock lock(mutex_);
    auto record = records_.extract(inode);
    count_ = records_.size();
    return record;
  }();
  if (taken.empty()) return std::nullopt;
  append(fmt::format("{:x}\n", inode));
  return taken.mapped();
}

// Undoes an incomplete write, because otherwise the next line would be appended to the incomplete line.
void OriginLog::append(const std::string& line) {
  if (!file_) {
    auto file = sys::open_beneath(work_, kFile, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!file) return;
    const auto st = sys::stat_fd(file->get());
    if (!st) return;
    size_ = st->st_size;
    file_ = *std::move(file);
  }
  if (!sys::write_all(file_.get(), line)) return (void)sys::set_size(file_.get(), size_);
  size_ += static_cast<off_t>(line.size());
  is_unsynced_ = true;
  if (++lines_ > kFewLines && lines_ > 2 * count_) rewrite();
}

void OriginLog::rewrite() {
  std::string text;
  {
    const ReaderLock lock(mutex_);
    for (const auto& [inode, record] : records_) text += line_of(inode, record);
    lines_ = records_.size();
  }
  file_.reset();                                      // append() opens the new file
  (void)sys::replace_file(work_, kFile, text, 0600);  // if this fails, the old file stays
}

Status OriginLog::sync() {
  if (!is_unsynced_.exchange(false)) return {};
  const MutexLock file_lock(file_mutex_);
  Status synced = file_ ? sys::sync_file(file_.get()) : Status();
  if (!synced) is_unsynced_ = true;
  return synced;
}

}  // namespace cacheshim
