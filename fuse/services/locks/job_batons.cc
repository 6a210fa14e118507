// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/job_batons.h"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "store/layer/baton_record.h"
#include "store/sys/process.h"

namespace cacheshim {
namespace {

// The maximum size of the file of baton records in a layer: about 3,000 records. Without a maximum, a job could fill
// the disk by creating and removing batons, because each baton leaves a record.
constexpr std::size_t kMostRecordBytes = std::size_t{1} << 20;

}  // namespace

void JobBatons::start(EventLoop& loop, std::function<void(const Baton&)> reap) {
  batons_ = std::make_unique<Batons>(loop, std::move(reap));
  watch_recorded_batons();
}

bool JobBatons::is_baton(const std::string& path) const {
  return row_of(entries_.class_of(path)).locks_by_existence;
}

void JobBatons::forget(const Job& job, const std::string& path) { batons_->removed(&job, path); }

void JobBatons::note_made(const FileHandle& handle, pid_t thread) {
  Job& job = *handle.job;
  std::optional<BatonRecord> unrecorded;
  {
    const ReaderLock lock(job.overlay.mutex());
    const auto path = nodes_.path(handle.node);
    if (!path || handle.is_lock_file || !is_baton(*path)) return;
    const ProcessOrigin maker = origin_of(process_of(thread));
    if (maker.process != 0 && job.layer) {
      BatonRecord record{*path,           handle.inode, maker.process,  maker.start_time,
                         maker.ancestors, boot_id(),    pid_namespace()};
      // Without the record, the baton stays if both its creator and this daemon die.
      const Status recorded =
          job.layer->append(kBatonRecordsFile, to_line(record), kMostRecordBytes);
      if (recorded.failed_with(EFBIG)) unrecorded = std::move(record);
    }
    batons_->watch({job.shared_from_this(), *path, handle.device, handle.inode}, maker);
  }
  if (unrecorded) record_again(job, *unrecorded);
}

// Rewrites the file of records without the records of batons that no longer exist. Adds `record`, unless the job has so
// many batons that their records would soon fill the file again.
void JobBatons::record_again(Job& job, const BatonRecord& record) {
  const WriterLock lock(job.overlay.mutex());  // other threads append with the lock held shared
  const auto text = job.layer ? job.layer->read(kBatonRecordsFile) : Errno(ENOENT);
  if (!text) return;
  std::string lines;
  for (const BatonRecord& known : parse_baton_records(*text)) {
    const auto found = job.overlay.find(known.path);
    if (found && found->in_upper && found->st.st_ino == known.inode) lines += to_line(known);
  }
  if (lines.size() <= kMostRecordBytes / 2) lines += to_line(record);
  // If this fails, `record` is missing, as if an append had failed.
  (void)job.layer->replace(kBatonRecordsFile, lines);
}

// Watches the batons that dead daemons have recorded in the layers that this daemon has taken over.
void JobBatons::watch_recorded_batons() {
  for (const auto& job : jobs_.all()) {
    const ReaderLock lock(job->overlay.mutex());
    const auto text = job->layer ? job->layer->read(kBatonRecordsFile) : Errno(ENOENT);
    if (!text) continue;
    for (BatonRecord& record : parse_baton_records(*text)) {
      const auto found = job->overlay.find(record.path);
      if (!found || !found->in_upper || found->st.st_ino != record.inode) continue;
      ProcessOrigin maker{record.process, record.start_time, std::move(record.ancestors)};
      const bool is_of_this_boot = record.boot == boot_id();
      if (is_of_this_boot && record.pid_namespace != pid_namespace())
        continue;  // this daemon cannot see the creator
      if (!is_of_this_boot) maker = ProcessOrigin::from_before_boot();
      batons_->watch({job, record.path, found->st.st_dev, found->st.st_ino}, std::move(maker));
    }
  }
}

}  // namespace cacheshim
