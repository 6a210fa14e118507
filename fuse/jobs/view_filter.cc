// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/view_filter.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "common/direct_page.h"
#include "common/used_names.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// A key sets 4 of the 64 bits of one word. With as many words as keys, 1 of 6,000 other keys is a false positive
// (measured). The first filter fits in one page. Most jobs need no larger filter. A call on a path of three components
// reads four words of it.
constexpr std::uint32_t kFirstWords = 256;
constexpr std::uint32_t kGrowth = 4;
constexpr std::uint32_t kMostWords = std::uint32_t{1} << 26;

std::uint64_t* words_of(const MappedFile& file) {
  return static_cast<std::uint64_t*>(
      static_cast<void*>(static_cast<FilterHeader*>(file.data()) + 1));
}

}  // namespace

ViewFilter::ViewFilter(std::string job, const DirectAccess* directories)
    : job_(std::move(job)), directories_(directories) {}

ViewFilter::~ViewFilter() { close(); }

void ViewFilter::open(uid_t uid, gid_t gid) {
  const MutexLock lock(mutex_);
  if (is_open_ || directories_ == nullptr) return;
  is_open_ = true;
  uid_ = uid;
  gid_ = gid;
  make_counters();
  add_mount_only();
  make_file();
}

// Adds the keys of the entries that are mount-only now. RejectionWatch adds later ones to every
// filter.
void ViewFilter::add_mount_only() {
  for (const std::string& entry : directories_->mount_only.all()) {
    const FilterKey key = key_of_path(entry);
    keys_.insert(key);
    keys_.insert(key_below(key));
  }
}

void ViewFilter::set_owner(uid_t uid, gid_t gid) {
  const MutexLock lock(mutex_);
  if (uid_ == uid && gid_ == gid) return;
  uid_ = uid;
  gid_ = gid;
  if (!is_open_) return;
  give_counters();
  make_file();
}

void ViewFilter::close() {
  const MutexLock lock(mutex_);
  if (!is_open_) return;
  is_open_ = false;
  retire();
  file_ = MappedFile();
  // The filter is retired, so a leftover is harmless.
  (void)sys::unlink_at(directories_->views.get(), job_);
  (void)sys::unlink_at(directories_->counters.get(), job_);  // a leftover is harmless
  before_ = read_counts();
  read_uses();
  counters_.reset();
}

void ViewFilter::retire() {
  if (!file_) return;
  auto& header = *static_cast<FilterHeader*>(file_.data());
  std::atomic_ref(header.retired).store(1);
}

// Replaces the filter with a new one that contains all current keys. The new filter is complete before the previous one
// is retired, and no key is added in between.
void ViewFilter::make_file() {
  word_count_ = kFirstWords;
  while (word_count_ < kMostWords && word_count_ < 2 * keys_.size()) word_count_ *= kGrowth;
  const std::size_t size = sizeof(FilterHeader) + word_count_ * sizeof(std::uint64_t);
  auto made = MappedFile::make(directories_->views.get(), job_, size, 0644);
  MappedFile before = std::exchange(file_, made ? *std::move(made) : MappedFile());
  Status done = made ? Status() : made.error();
  if (file_) {
    *static_cast<FilterHeader*>(file_.data()) = {kFilterMagic, kFilterVersion, word_count_, 0, is_building_};
    for (const FilterKey key : keys_) set_bits(key);
    done = file_.commit(directories_->views.get(), job_);
  }
  if (before) {
    auto& header = *static_cast<FilterHeader*>(before.data());
    std::atomic_ref(header.retired).store(1);
  }
  if (done) return;
  spdlog::warn("cannot write the filter of job '{}': {}; its processes open through the mount",
               job_, std::strerror(done.error().code()));
  (void)sys::unlink_at(directories_->views.get(), job_);  // the previous filter, which is retired
  file_ = MappedFile();
}

void ViewFilter::set_bits(FilterKey key) {
  const FilterPlace place = place_of(key, word_count_);
  std::atomic_ref(words_of(file_)[place.word]).fetch_or(place.bits);
}

void ViewFilter::add_key(FilterKey key) {
  if (shadows_all_ || !keys_.insert(key).second) return;
  if (keys_.size() > kMostKeys) return shadow_all();
  if (!file_) return;
  set_bits(key);
  if (keys_.size() > word_count_ && word_count_ < kMostWords) make_file();
}

// The key "below" the root shadows every name; the root's own key also stops direct listings of the root.
void ViewFilter::shadow_all() {
  keys_ = {kRootKey, key_below(kRootKey)};
  shadows_all_ = true;
  if (file_) make_file();
}

void ViewFilter::add(std::string_view path, bool tree) {
  if (directories_ == nullptr || directories_->rules.is_mount_only(path)) return;
  const FilterKey key = key_of_path(path);
  const MutexLock lock(mutex_);
  add_key(key);
  if (tree) add_key(key_below(key));
}

// Relaxed memory order suffices: at worst, a process that reads the old value opens one more file of the base directly,
// and the daemon does not see that open.
void ViewFilter::set_building(bool is_building) {
  const MutexLock lock(mutex_);
  is_building_ = is_building;
  if (!file_) return;
  auto& header = *static_cast<FilterHeader*>(file_.data());
  std::atomic_ref(header.building).store(is_building, std::memory_order_relaxed);
}

void ViewFilter::clear(const std::vector<std::string>& kept) {
  const MutexLock lock(mutex_);
  if (keys_.empty()) return;
  keys_ = {};
  shadows_all_ = false;
  for (const std::string& path : kept) keys_.insert(key_of_path(path));
  if (!is_open_) return;
  add_mount_only();
  make_file();
}

// Makes the file of counters. Only the view's user may write to it. This user may also truncate the file, which would
// kill a process that reads it through a mapping. So the daemon reads the file with pread(2).
void ViewFilter::make_counters() {
  const std::size_t size = kCountersBytes + (records_uses_ ? kUsedBytes : 0);
  auto made = MappedFile::make(directories_->counters.get(), job_, size, 0600);
  if (!made || !made->commit(directories_->counters.get(), job_)) return;
  auto fd = sys::open_beneath(directories_->counters.get(), job_, O_RDONLY);
  if (fd) counters_ = *std::move(fd);
  give_counters();
}

void ViewFilter::give_counters() {
  if (!counters_) return;
  // If this fails, the processes cannot open the counters, so they use the mount.
  (void)sys::set_owner(counters_.get(), uid_, gid_);
}

ViewFilter::Counts ViewFilter::read_counts() const {
  Counts counts = before_;
  std::array<CounterSlot, kCounterSlots> slots{};
  if (!counters_ || ::pread(counters_.get(), slots.data(), sizeof slots, 0) !=
                        static_cast<ssize_t>(sizeof slots)) {
    return counts;
  }
  for (const CounterSlot& slot : slots) {
    counts.opens += slot.opens;
    counts.lookups += slot.lookups;
  }
  return counts;
}

ViewFilter::Counts ViewFilter::counts() const {
  const MutexLock lock(mutex_);
  return read_counts();
}

// Replaces the filter too, because the processes map the new counters only when they map a new filter.
void ViewFilter::record_uses() {
  const MutexLock lock(mutex_);
  used_.assign(kUsedWords, 0);
  records_uses_ = true;
  if (!is_open_) return;
  before_ = read_counts();
  counters_.reset();
  make_counters();
  make_file();
}

void ViewFilter::note_use(std::string_view path) {
  if (!records_uses()) return;
  const MutexLock lock(mutex_);
  if (!used_.empty()) mark_used(used_.data(), path);
}

// Adds the names that the processes have recorded. The file may be shorter than expected, because its owner can
// truncate it (make_counters()).
void ViewFilter::read_uses() {
  if (!records_uses_ || !counters_) return;
  std::vector<std::uint64_t> words(kUsedWords);
  const ssize_t size = ::pread(counters_.get(), words.data(), kUsedBytes, kCountersBytes);
  if (size != ssize_t{kUsedBytes}) return;
  for (std::size_t i = 0; i < words.size(); ++i) used_[i] |= words[i];
}

std::vector<std::uint64_t> ViewFilter::take_uses() {
  const MutexLock lock(mutex_);
  read_uses();
  records_uses_ = false;
  return std::exchange(used_, {});
}

}  // namespace cacheshim
