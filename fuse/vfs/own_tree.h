// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fuse/mount.h"
#include "fuse/requests/control_files.h"
#include "fuse/vfs/request.h"

namespace cacheshim {

// The mount's own directories: the root with its symlinks, .jobs and .cacheshim.
//
// A symlink in the root leads each caller to its own job's view. This works only while the kernel does not cache
// READLINK: never set FUSE_CAP_CACHE_SYMLINKS. Thread-safe; call with no lock held.
class OwnTree {
 public:
  OwnTree(Mount& mount, ControlFiles& control) : mount_(mount), control_(control) {}

  // Looks up a name in one of the mount's own directories, except .jobs.
  Result<Entry> lookup_own(const Request& request, NodeRef parent, const NodeInfo& info,
                           const std::string& name);
  // Looks up a job's view in .jobs: "<job>", or "<job>@<uid>" for the view of one uid. The lookup of "<job>" by root or
  // by one of the job's own processes starts the job if it is not active. If `make` is true, so does the lookup by any
  // other caller to whom JobRights gives the job. If `make` is false, and the caller claims this job but gets another
  // one from JobRights, returns a symlink to the other one.
  Result<Entry> lookup_job(const Request& request, const std::string& name, bool make);
  // Completes a lookup of a view, once the kernel has dropped the cached attributes that show the view without an
  // owner.
  void complete_job(EntryCompletion completion, const Result<Entry>& entry);
  // Serves mkdir(2) of MOUNT/name, which `mkdir -p MOUNT/name/…` calls. Creates the directory in the caller's view,
  // where the symlink MOUNT/name leads. Fails with EEXIST, because the kernel has created no directory here; `mkdir -p`
  // continues after that.
  void make_in_root(const Request& request, const std::string& name, mode_t mode,
                    EntryCompletion completion);
  struct stat own_attr(NodeIndex node, const NodeInfo& info) const;
  Result<std::string> link_target(const Request& request, NodeIndex node, const NodeInfo& info);
  std::vector<ListedEntry> list_own(const Request& request, const NodeInfo& info);
  // Errors: EACCES if the caller opens a file other than `control` for writing, or may not read the file of another
  // user's job; EMFILE if the caller has reached a limit.
  Result<OpenedFile> open_own(const Request& request, NodeRef ref, const NodeInfo& info, int flags);
  ControlFiles& control() { return control_; }
  // Returns the caller's job, and starts it if it is not active. Errors: those of JobTable::ensure_active().
  Result<std::shared_ptr<Job>> job_of(const Request& request);
  // Whether the kernel must repeat this caller's lookup of the job's view. The kernel has used the name that it caches
  // for the view's owner, but lookup_job() would give this caller a symlink. Returns true at most a few times a second
  // for each job, because each repetition also makes the kernel drop the names that it caches below the owner's view.
  bool must_look_again(const Caller& caller, Job& job) const;

 private:
  Result<Entry> lookup_root(const Request& request, const std::string& name);
  struct LookupOfJob {
    bool begins;  // starts the job if it is not active
    bool makes;   // as `make` in lookup_job()
  };
  Result<std::shared_ptr<Job>> find_open_job(const Caller& caller, const JobClaim& claim, const std::string& id,
                             const LookupOfJob& lookup);
  bool may_begin(const Caller& caller, const std::string& id) const;
  Entry own_entry(NodeIndex parent, const std::string& name, NodeKind kind, double timeout,
                  Job* job = nullptr);
  Result<std::string> text_of(const Request& request, NodeIndex node, const NodeInfo& info);
  std::shared_ptr<Job> find_job_of(const Request& request);
  std::string view_name(const Job& job, ViewSlot slot) const;
  Result<std::string> target_of_job_link(const Request& request, NodeIndex node);
  bool is_profile_name(const std::string& name) const;

  Mount& mount_;
  ControlFiles& control_;
};

}  // namespace cacheshim
