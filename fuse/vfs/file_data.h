// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/own_tree.h"

namespace cacheshim {

// Reads and changes the data of open files, which `Files` opens and closes. A read takes no lock, unless the file's
// data have moved since the last read. A write holds the overlay's mutex shared, and publishing holds it exclusively,
// so no write is in progress while a file moves to the base. Thread-safe; call with no lock held.
class FileData {
 public:
  FileData(Mount& mount, Objects& objects, Answers& answers, OwnTree& own_tree)
      : mount_(mount), objects_(objects), answers_(answers), own_tree_(own_tree) {}

  Result<ReadSource> read(const OpenFlags& open);
  Result<std::size_t> write(const Request& request, const OpenFlags& open, std::string_view data,
                            off_t offset);
  Status fsync(std::uint64_t fh, bool is_data_alone);
  Status fallocate(std::uint64_t fh, int mode, off_t offset, off_t length);
  Result<off_t> lseek(std::uint64_t fh, off_t offset, int whence);
  Result<std::size_t> copy_file_range(std::uint64_t fh_in, off_t in, std::uint64_t fh_out,
                                      off_t out, std::size_t length);

  // Runs `change` with a descriptor of the file's current data. First copies the file up if it is not in the layer.
  Result<std::size_t> change_data(FileHandle& handle,
                                  const std::function<Result<std::size_t>(int fd)>& change);
  // Clears the set-id bits and capabilities that the caller's change to the file's data must clear.
  Status drop_privileges(const Request& request, NodeRef ref, int fd);

 private:
  Status pay_for(const FileHandle& handle, off_t offset, std::uint64_t length) const;
  Status refresh_for_reading(FileHandle& handle);
  // Both open the handle's file again after its data have moved: to the layer by a copy-up, or to the base by
  // publishing. Errors: ESTALE if only the handle's own descriptor still leads to the data.
  Result<UniqueFd> reopen_for_writing(const FileHandle& handle)
      REQUIRES(handle.job->overlay.mutex());
  Result<UniqueFd> reopen_for_reading(const FileHandle& handle) const
      REQUIRES_SHARED(handle.job->overlay.mutex());

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
  OwnTree& own_tree_;
};

}  // namespace cacheshim
