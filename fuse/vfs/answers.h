// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "fuse/vfs/objects.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// Entries and attributes as a view shows them, and for how long. Thread-safe.
class Answers {
 public:
  Answers(Mount& mount, Objects& objects) : mount_(mount), objects_(objects) {}

  Result<struct stat> show(NodeRef ref, const NodeInfo& info, const struct stat& st,
                           bool in_upper) const;
  // By the node's path, or, if it has lost its name, by what stands for that.
  Result<Attributes> object_attr(NodeRef ref, const NodeInfo& given);
  // As fstat(2) of an open descriptor shows it.
  Result<Attributes> attr_of_open(NodeRef ref) const;
  // As the descriptor of a handle shows `st`, of a file of class `shared`.
  Result<Attributes> handle_attr(NodeRef ref, const NodeInfo& info, struct stat st, bool in_upper);
  // What the caller itself has written to such a file, if it has it open.
  std::optional<Result<Attributes>> attr_of_writer(const Request& request, NodeRef ref,
                                                   const NodeInfo& info);

  // ---- Each counts one lookup of the node.
  Result<Entry> entry_of(Job& job, NodeRef parent, const std::string& name, Found found,
                         const DirectoryLookup& look) REQUIRES_SHARED(job.overlay.mutex());
  // An entry without a node says that the name is absent.
  Result<Entry> find_entry(Job& job, NodeRef parent, const std::string& name)
      REQUIRES_SHARED(job.overlay.mutex());
  // The same of what has just been made.
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
