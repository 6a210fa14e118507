// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/flight_requests.h"
#include "fuse/vfs/lock_requests.h"
#include "fuse/vfs/own_tree.h"
#include "store/sys/new_object.h"

namespace cacheshim {

// Opens, reads and writes files. Reads take no lock. A write holds the overlay's mutex shared, and publishing holds it
// exclusively, so no write is in progress while a file moves to the base. Thread-safe; call with no lock held.
class Files {
 public:
  Files(Mount& mount, Objects& objects, Answers& answers, OwnTree& own_tree,
        FlightRequests& flight_requests, LockRequests& lock_requests)
      : mount_(mount),
        objects_(objects),
        answers_(answers),
        own_tree_(own_tree),
        flight_requests_(flight_requests),
        lock_requests_(lock_requests) {}

  Result<CreatedFile> create(const Request& request, NodeId parent, const char* name, mode_t mode,
                             int flags);
  Result<CreatedFile> tmpfile(const Request& request, NodeId parent, mode_t mode, int flags);
  void open(const Request& request, NodeId ino, int flags, OpenCompletion completion);
  Result<ReadSource> read(const OpenFlags& open);
  Result<std::size_t> write(const Request& request, const OpenFlags& open, std::string_view data,
                            off_t offset);
  void release(std::uint64_t fh);
  Status fsync(std::uint64_t fh, bool is_data_alone);
  Status fallocate(std::uint64_t fh, int mode, off_t offset, off_t length);
  Result<off_t> lseek(std::uint64_t fh, off_t offset, int whence);
  Result<std::size_t> copy_file_range(std::uint64_t fh_in, off_t in, std::uint64_t fh_out,
                                      off_t out, std::size_t length);

  // Runs `change` with a descriptor of the file's current data, which it copies up before if necessary.
  Result<std::size_t> change_data(FileHandle& handle,
                                  const std::function<Result<std::size_t>(int fd)>& change);
  // Call before the file's data change. Clears the set-id bits and capabilities that the caller's change invalidates.
  Status drop_privileges(const Request& request, NodeRef ref, int fd);

 private:
  using NewHandle = Result<std::unique_ptr<FileHandle>>;
  using Created = std::pair<Entry, std::unique_ptr<FileHandle>>;

  Result<OpenedFile> open_object_file(const Request& request, NodeRef ref, const NodeInfo& info,
                                      int flags);
  NewHandle open_file(NodeRef ref, Job& job, int flags);
  NewHandle open_writable(NodeRef ref, Job& job, int flags);
  NewHandle open_common(NodeRef ref, const NodeInfo& info, int flags);
  OpenedFile add_file(const Request& request, std::unique_ptr<FileHandle> handle);
  Result<Created> create_file(NodeRef parent, const std::string& name, const NewObject& wanted,
                              int flags);
  Result<Created> create_tmpfile(NodeRef parent, const NewObject& wanted, int flags);
  Status refresh_for_reading(FileHandle& handle);
  void end_writing(FileHandle& handle);

  // ---- The mutex keeps the file from being published before its new writer is counted.
  NewHandle open_readable(NodeRef ref, Job& job, int flags) REQUIRES_SHARED(job.overlay.mutex());
  NewHandle open_removed(NodeRef ref, Job& job, const NodeInfo& info, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  Result<Created> create_common(Job& job, NodeRef parent, const std::string& path, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  NewHandle make_handle(Opened opened, const struct stat& st, NodeRef ref, Job& job, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  Status choose_io(FileHandle& handle, const Job& job, const struct stat& st, int flags)
      REQUIRES_SHARED(job.overlay.mutex());
  // Open the handle's file again after its data have moved: to the layer by a copy-up, or to the base by publishing.
  // Errors: ESTALE if only the handle's own descriptor still leads to the data.
  Result<UniqueFd> reopen_for_writing(const FileHandle& handle)
      REQUIRES(handle.job->overlay.mutex());
  Result<UniqueFd> reopen_for_reading(const FileHandle& handle) const
      REQUIRES_SHARED(handle.job->overlay.mutex());

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
  OwnTree& own_tree_;
  FlightRequests& flight_requests_;
  LockRequests& lock_requests_;
};

}  // namespace cacheshim
