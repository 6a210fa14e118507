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

  // ---- Each counts one lookup of the node. Requires: Overlay::mutex().
  Result<Entry> entry_of(NodeRef parent, const NodeInfo& info, const std::string& name, Found found,
                         const DirectoryLookup& look);
  // An entry without a node says that the name is absent.
  Result<Entry> find_entry(NodeRef parent, const NodeInfo& info, const std::string& name);
  // The same of what has just been made.
  Result<Entry> made_entry(NodeRef parent, const NodeInfo& info, const std::string& name);

 private:
  Result<Attributes> attr_by_path(NodeRef ref);
  Result<Attributes> attr_of_common(NodeRef ref, const NodeInfo& info);

  Mount& mount_;
  Objects& objects_;
};

}  // namespace cacheshim
