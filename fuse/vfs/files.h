// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/file_data.h"
#include "fuse/vfs/flight_requests.h"
#include "fuse/vfs/lock_requests.h"
#include "fuse/vfs/own_tree.h"
#include "store/sys/new_object.h"

namespace cacheshim {

// Creates, opens and closes files. Thread-safe; call with no lock held.
class Files {
 public:
  Files(Mount& mount, Objects& objects, Answers& answers, OwnTree& own_tree,
        FlightRequests& flight_requests, LockRequests& lock_requests, FileData& data)
      : mount_(mount),
        objects_(objects),
        answers_(answers),
        own_tree_(own_tree),
        flight_requests_(flight_requests),
        lock_requests_(lock_requests),
        data_(data) {}

  Result<CreatedFile> create(const Request& request, NodeId parent, const char* name, mode_t mode,
                             int flags);
  Result<CreatedFile> tmpfile(const Request& request, NodeId parent, mode_t mode, int flags);
  void open(const Request& request, NodeId ino, int flags, OpenCompletion completion);
  void release(std::uint64_t fh);

 private:
  using NewHandle = Result<std::unique_ptr<FileHandle>>;
  using Created = std::pair<Entry, std::unique_ptr<FileHandle>>;

  Result<OpenedFile> open_object_file(const Request& request, NodeRef ref, const NodeInfo& info,
                                      int flags);
  NewHandle open_file(NodeRef ref, Job& job, int flags);
  NewHandle open_writable(NodeRef ref, Job& job, int flags);
  NewHandle open_common(NodeRef ref, const NodeInfo& info, int flags);
  OpenedFile add_file(const Request& request, std::unique_ptr<FileHandle> handle, Charge charge);
  Result<Created> create_file(NodeRef parent, const std::string& name, const NewObject& wanted,
                              int flags);
  Result<Created> create_tmpfile(const Request& request, NodeRef parent, mode_t mode, int flags);
  void end_writing(FileHandle& handle);

  // ---- These functions require the mutex, so that the file cannot be published before its new writer is counted.
  NewHandle open_readable(NodeRef ref, Job& job, int flags) REQUIRES_SHARED(job.overlay.mutex());
  NewHandle open_removed(NodeRef ref, Job& job, const NodeInfo& info, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  Result<Created> create_common(Job& job, NodeRef parent, const std::string& path, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  NewHandle make_handle(Opened opened, const struct stat& st, NodeRef ref, Job& job, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  Status choose_io(FileHandle& handle, const Job& job, const struct stat& st, int flags)
      REQUIRES_SHARED(job.overlay.mutex());

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
  OwnTree& own_tree_;
  FlightRequests& flight_requests_;
  LockRequests& lock_requests_;
  FileData& data_;
};

}  // namespace cacheshim
