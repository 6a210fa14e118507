// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fuse/vfs/answers.h"
#include "fuse/vfs/flight_requests.h"
#include "fuse/vfs/lock_requests.h"
#include "fuse/vfs/own_tree.h"

namespace cacheshim {

// Serves lookup and forget, and all requests that create, remove or rename a name. Thread-safe; call with no lock held.
class Names {
 public:
  Names(Mount& mount, Objects& objects, Answers& answers, OwnTree& own_tree,
        FlightRequests& flight_requests, LockRequests& lock_requests)
      : mount_(mount),
        objects_(objects),
        answers_(answers),
        own_tree_(own_tree),
        flight_requests_(flight_requests),
        lock_requests_(lock_requests) {}

  void lookup(const Request& request, NodeId parent, const char* name, EntryCompletion completion);
  void forget(NodeId ino, std::uint64_t count);
  // Call if the kernel did not accept the reply that contains this node, because the caller was killed.
  void drop_entry(NodeId ino);
  Result<Entry> mknod(const Request& request, NodeId parent, const char* name, mode_t mode,
                      dev_t device);
  void mkdir(const Request& request, NodeId parent, const char* name, mode_t mode,
             EntryCompletion completion);
  void unlink(const Request& request, NodeId parent, const char* name, StatusCompletion completion);
  void rmdir(const Request& request, NodeId parent, const char* name, StatusCompletion completion);
  void symlink(const Request& request, const char* target, NodeId parent, const char* name,
               EntryCompletion completion);
  void rename(const Request& request, NodeId parent, const char* name, NodeId new_parent,
              const char* new_name, unsigned flags, StatusCompletion completion);
  void link(const Request& request, NodeId ino, NodeId new_parent, const char* new_name,
            EntryCompletion completion);
  // Removes a baton whose creator has died.
  void reap(const Baton& baton);

 private:
  // A function that removes the object at `path`.
  using RemoveName = std::function<Status(Job& job, const std::string& path, Hold hold)>;

  Result<Entry> make_entry(NodeId parent, const std::string& name,
                           const std::function<Status(Overlay&, const std::string&)>& make);
  Status check_nodes(const Job& job, NodeRef parent, std::string_view name);
  // Whether renaming this object to another directory would copy so much that other renames of the mount must not wait
  // for the rename.
  bool copies_too_much(Job& job, NodeRef directory, const std::string& name);
  // Removes the name. Returns the path that the object had.
  Result<std::string> remove_name(const Request& request, NodeId parent, const std::string& name,
                                  const RemoveName& remove);
  // A name in a directory of a view.
  struct Place {
    NodeRef directory;
    std::string name;
  };
  Result<std::string> rename_object(const Request& request, const Place& old_place,
                                    const Place& new_place, unsigned flags);
  // Notifies the services that an object has just been created at `path`, or has just got this name. `Publishing`
  // answers the request through `waiter`.
  void note_named(const Request& request, Job& job, const std::string& path,
                  Publishing::Waiter waiter);
  Status link_to(NodeIndex node, Job& job, const std::string& new_path)
      REQUIRES(job.overlay.mutex());
  Result<Entry> add_lock_name(Job& job, NodeIndex source, NodeRef parent, const std::string& path)
      REQUIRES(job.overlay.mutex());

  Mount& mount_;
  Objects& objects_;
  Answers& answers_;
  OwnTree& own_tree_;
  FlightRequests& flight_requests_;
  LockRequests& lock_requests_;
};

}  // namespace cacheshim
