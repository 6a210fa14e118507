// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/file_data.h"
#include "fuse/vfs/flight_requests.h"
#include "fuse/vfs/own_tree.h"

namespace cacheshim {

// Serves stat, chmod, chown, utimes, truncate, xattrs, readlink and statfs. Thread-safe; call with no lock held.
class AttributeRequests {
 public:
  AttributeRequests(Mount& mount, Objects& objects, Answers& answers, OwnTree& own_tree,
                    FlightRequests& flight_requests, FileData& file_data)
      : mount_(mount),
        objects_(objects),
        answers_(answers),
        own_tree_(own_tree),
        flight_requests_(flight_requests),
        file_data_(file_data) {}

  void getattr(const Request& request, NodeId ino, std::optional<std::uint64_t> fh,
               AttributesCompletion completion);
  // `to_set`: FATTR_ bits.
  Result<Attributes> setattr(const Request& request, NodeId ino, const struct stat& attr,
                             int to_set, std::optional<std::uint64_t> fh);
  Result<std::string> readlink(const Request& request, NodeId ino);
  Result<struct statvfs> statfs(NodeId ino);
  Status setxattr(const Request& request, NodeId ino, const char* name, std::string_view value,
                  int flags);
  Result<std::string> getxattr(NodeId ino, const char* name);
  // Returns the names, each followed by a NUL.
  Result<std::string> listxattr(NodeId ino);
  Status removexattr(NodeId ino, const char* name);

 private:
  // Returns the attributes of an open file of class `shared` whose writes are staged.
  Result<Attributes> attr_of_staged(NodeRef ref, const NodeInfo& info, const FileHandle& handle);
  Result<Attributes> attr_of_object(const Request& request, NodeRef ref, const NodeInfo& info);
  // Whether a request keeps the file's set-id bits, or clears them as a write or a chown does.
  enum class SetIds { kStay, kDroppedByWrite, kDroppedByChown };
  Result<SetIds> set_ids_after(const Request& request, NodeRef ref, const NodeInfo& info,
                               int to_set);
  static Status change_lock(int fd, off_t most_bytes, const struct stat& attr, int to_set);
  Status change_common(NodeRef ref, const NodeInfo& info, const struct stat& attr, int to_set);
  Status change_attr(const Request& request, NodeRef ref, const NodeInfo& info,
                     const struct stat& attr, int to_set, FileHandle* handle);
  std::optional<Result<Attributes>> try_change_shared(NodeRef ref, const NodeInfo& info,
                                                      const struct stat& attr, int to_set,
                                                      FileHandle* handle);
  Result<Attributes> change_staged(NodeRef ref, const NodeInfo& info, const struct stat& attr,
                                   int to_set, FileHandle& handle);
  bool keeps_xattr(const char* name) const;
  Status change_xattr(NodeId ino, const char* name, const std::function<Status(int fd)>& change);
  Result<std::string> xattr_of(const Job& job, NodeIndex node, const char* name)
      REQUIRES_SHARED(job.overlay.mutex());

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
  OwnTree& own_tree_;
  FlightRequests& flight_requests_;
  FileData& file_data_;
};

}  // namespace cacheshim
