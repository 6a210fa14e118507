// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

// The interface through which the publisher calls the daemon.
namespace cacheshim {

// The job that publishes, for the audit record.
struct PublishingJob {
  std::string job;
  std::string cycle;
  std::optional<unsigned> uid;
};

// The publisher's callbacks for one publishing job. An implementation must not call the overlay or the publisher. The
// publisher may hold the unit's locks during each call. It holds Overlay::mutex() only where a comment says so.
class PublishHooks {
 public:
  virtual ~PublishHooks() = default;
  // Whether a descriptor of this job may still write to the file. Overlay::mutex() is held.
  virtual bool is_being_written(dev_t device, ino_t inode) = 0;
  // Waits a short time for writers to close the file. Returns false if the file is still open for writing.
  virtual bool wait_until_closed(dev_t device, ino_t inode) = 0;
  // Called if the base has other content for this unit. Returns false if the daemon already knew
  // this.
  virtual bool note_conflict(const std::string& unit) = 0;
  // Called when the unit stays in the layer, with the reason, and when the unit has been published,
  // with the reason "". Returns false if the daemon already knew this.
  virtual bool note_why_unpublished(const std::string& unit, const std::string& reason) = 0;
  // Returns "" if the job's files may be published, otherwise the reason why not, for messages. The
  // publisher calls this again, with Overlay::mutex() held exclusively, before it changes the base.
  virtual std::string why_refused() const = 0;
  virtual PublishingJob identity() const = 0;
  // Whether the mount has only one user. If so, other users need not be able to read published files.
  virtual bool has_one_user() const { return false; }
  // Whether the job has opened the base's entry and then changed the entry in its view.
  virtual bool has_rejected(const std::string& /*unit*/) { return false; }
  // Called when the rejection has been recorded.
  virtual void settle_rejected(const std::string& /*unit*/) {}
  // Whether the job's rebuilds may replace the base's entries. Only a job that publishes entries as
  // soon as they are complete may do so.
  virtual bool may_replace() const { return true; }
  // Called after `path` has been removed from the layer, so that the view now shows the base's file. `base`: that
  // file's attributes. Overlay::mutex() is held exclusively.
  virtual void published(const std::string& path, const struct stat& base) = 0;
};

}  // namespace cacheshim
