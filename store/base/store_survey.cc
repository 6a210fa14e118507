// SPDX-License-Identifier: Apache-2.0
#include "store/base/store_survey.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <time.h>

#include <array>
#include <functional>
#include <utility>

#include "store/base/base_units.h"
#include "store/layer/layer.h"
#include "store/sys/paths.h"
#include "store/sys/raw_locks.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr const char* kOwnerLock = "owner.lock";
constexpr std::size_t kProbeBytes = 4096;

bool is_locked_at(int directory, const std::string& path) {
  const auto lock = sys::open_beneath(directory, path, O_PATH | O_NOFOLLOW);
  const auto st = lock ? sys::stat_fd(lock->get()) : Result<struct stat>(lock.error());
  return st && is_locked_elsewhere(st->st_dev, st->st_ino);
}

SurveyedLayer survey_layer(int layers, const std::string& job, const std::string& name) {
  const std::string path = join_path(job, name);
  SurveyedLayer layer;
  layer.job = job;
  layer.is_ended = name.find(kEndedLayerMark) != std::string::npos;
  const auto text = sys::read_file(layers, join_path(path, kLayerRecordFile));
  const auto record = text ? parse_layer_record(*text) : Result<LayerRecord>(text.error());
  if (record) {
    layer.node = record->node;
    layer.is_active = record->active;
  }
  layer.is_served = !layer.is_ended && is_locked_at(layers, join_path(path, kOwnerLock));
  return layer;
}

Result<UniqueFd> open_directory(int parent, const std::string& path) {
  return sys::open_beneath(parent, path, O_RDONLY | O_DIRECTORY);
}

}  // namespace

Result<std::vector<SurveyedLayer>> survey_layers(int layers) {
  std::vector<SurveyedLayer> found;
  CACHESHIM_TRY(jobs, sys::list_dir(layers));
  for (const sys::DirEntry& job : jobs) {
    const auto directory = open_directory(layers, job.name);
    if (!directory) continue;
    const auto names = sys::list_dir(directory->get());
    if (!names) continue;
    for (const sys::DirEntry& name : *names) {
      found.push_back(survey_layer(layers, job.name, name.name));
    }
  }
  return found;
}

Result<std::size_t> count_old_trash(int control, long keep_seconds) {
  CACHESHIM_TRY(trash, open_directory(control, "trash"));
  CACHESHIM_TRY(names, sys::list_dir(trash.get()));
  const std::time_t oldest = std::time(nullptr) - keep_seconds;
  std::size_t count = 0;
  for (const sys::DirEntry& name : names) {
    if (trashed_since(name.name) <= oldest) ++count;
  }
  return count;
}

Result<std::size_t> count_left_staging(int control) {
  CACHESHIM_TRY(staging, open_directory(control, "staging"));
  CACHESHIM_TRY(names, sys::list_dir(staging.get()));
  std::size_t count = 0;
  for (const sys::DirEntry& name : names) {
    if (!is_locked_at(staging.get(), join_path(name.name, kOwnerLock))) ++count;
  }
  return count;
}

LockSupport probe_locks(int file) {
  const Status locked = sys::lock_file(file, LOCK_SH | LOCK_NB);
  if (locked) (void)sys::lock_file(file, LOCK_UN);  // if this fails, closing the file unlocks it
  if (locked || locked.failed_with(EWOULDBLOCK)) return LockSupport::kWorks;
  for (const int none : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    if (locked.failed_with(none)) return LockSupport::kNone;
  }
  return LockSupport::kUnknown;
}

Result<bool> probe_reflink(int directory) {
  CACHESHIM_TRY(source, sys::open_beneath(directory, "", O_TMPFILE | O_RDWR, 0600));
  CACHESHIM_TRY(target, sys::open_beneath(directory, "", O_TMPFILE | O_RDWR, 0600));
  CACHESHIM_CHECK(sys::write_all(source.get(), std::string(kProbeBytes, 'x')));
  return ::ioctl(target.get(), FICLONE, source.get()) == 0;
}

}  // namespace cacheshim
