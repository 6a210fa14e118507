// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "fuse/vfs/objects.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Computes entries and attributes as a view shows them, and how long the kernel may cache them.
// Thread-safe.
class Answers {
 public:
  Answers(Mount& mount, Objects& objects) : mount_(mount), objects_(objects) {}

  Result<struct stat> show(NodeRef ref, const NodeInfo& info, const struct stat& st,
                           bool in_upper) const;
  // Returns the attributes of the object at the node's path or, if the node has lost its name, of the object that the
  // node holds.
  Result<Attributes> object_attr(NodeRef ref, const NodeInfo& given);
  // Returns the attributes that fstat(2) of an open descriptor shows. Errors: ESTALE if the node is
  // not open.
  Result<Attributes> attr_of_open(NodeRef ref) const;
  // Returns the attributes of an open file of class `shared`. `st`: the result of fstat(2) on the handle's own
  // descriptor.
  Result<Attributes> handle_attr(NodeRef ref, const NodeInfo& info, struct stat st, bool in_upper);
  // Returns the attributes of a file of class `shared` after the caller's own writes, which no other process sees yet.
  // Returns nothing if the caller does not have the file open for writing.
  std::optional<Result<Attributes>> attr_of_writer(const Request& request, NodeRef ref,
                                                   const NodeInfo& info);

  // ---- These functions add one to the node's lookup count. A FORGET subtracts it again.
  Result<Entry> entry_of(Job& job, NodeRef parent, const std::string& name, Found found,
                         const DirectoryLookup& lookup) REQUIRES_SHARED(job.overlay.mutex());
  // Returns an entry with `ino` 0 if the name does not exist.
  Result<Entry> find_entry(Job& job, NodeRef parent, const std::string& name)
      REQUIRES_SHARED(job.overlay.mutex());
  // As find_entry(), for an object that the caller has just created. Errors: EIO if another process has removed it.
  Result<Entry> made_entry(Job& job, NodeRef parent, const std::string& name)
      REQUIRES_SHARED(job.overlay.mutex());

 private:
  Result<Attributes> attr_by_path(NodeRef ref);
  Result<Attributes> attr_of_common(NodeRef ref, const NodeInfo& info)
      REQUIRES_SHARED(info.job->overlay.mutex());

  Mount& mount_;
  Objects& objects_;
};

}  // namespace cacheshim
