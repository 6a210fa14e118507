// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/entry_reads.h"

#include <functional>

namespace cacheshim {
namespace {

std::uint64_t key_of(const std::string& unit, pid_t thread) {
  constexpr std::uint64_t kOddFactor = 0x9e3779b97f4a7c15;  // spreads neighboring thread ids
  return std::hash<std::string>{}(unit) ^ (static_cast<std::uint64_t>(thread) * kOddFactor);
}

}  // namespace

void EntryReads::note_read(const std::string& unit, pid_t thread) {
  const MutexLock lock(mutex_);
  if (reads_.size() >= kMostReads) reads_.clear();
  reads_.insert(key_of(unit, thread));
  has_any_ = true;
}

bool EntryReads::has_read(const std::string& unit, pid_t thread) const {
  if (!has_any()) return false;
  const MutexLock lock(mutex_);
  return reads_.contains(key_of(unit, thread));
}

void EntryReads::note_rejected(const std::string& unit) {
  const MutexLock lock(mutex_);
  if (rejected_.size() >= kMostRejected) return;
  rejected_.insert(unit);
  has_rejected_any_ = true;
}

bool EntryReads::has_rejected(const std::string& unit) const {
  if (!has_rejected_any()) return false;
  const MutexLock lock(mutex_);
  return rejected_.contains(unit);
}

void EntryReads::settle(const std::string& unit) {
  const MutexLock lock(mutex_);
  rejected_.erase(unit);
  has_rejected_any_ = !rejected_.empty();
}

void EntryReads::clear() {
  const MutexLock lock(mutex_);
  reads_ = {};
  rejected_ = {};
  has_any_ = has_rejected_any_ = false;
}

}  // namespace cacheshim
