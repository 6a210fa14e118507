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
// A symlink in the root leads each caller to the view of the caller's job. So the kernel must not cache the result of
// READLINK: never set FUSE_CAP_CACHE_SYMLINKS. Thread-safe; call with no lock held.
class OwnTree {
 public:
  OwnTree(Mount& mount, ControlFiles& control) : mount_(mount), control_(control) {}

  // Looks up a name in one of the mount's own directories, except .jobs.
  Result<Entry> lookup_own(const Request& request, NodeRef parent, const NodeInfo& info,
                           const std::string& name);
  // Looks up a job's view in .jobs: "<job>", or "<job>@<uid>" for the view of one uid. If the job is not active, a
  // lookup of "<job>" by root or by one of the job's own processes starts it. `make`: true for mkdir(2), false for a
  // lookup. If `make` is true, any other caller to whom JobRights gives the job starts it too. If `make` is false, a
  // caller that claims this job, but gets another one from JobRights, gets a symlink to that job.
  Result<Entry> lookup_job(const Request& request, const std::string& name, bool make);
  // Completes a lookup of a view, once the kernel has dropped the cached attributes that show the view without an
  // owner.
  void complete_job(EntryCompletion completion, const Result<Entry>& entry);
  // Serves mkdir(2) of MOUNT/name, which `mkdir -p MOUNT/name/…` calls. Creates the directory in the caller's view,
  // where the symlink MOUNT/name leads. Then fails with EEXIST, because there is no new directory at MOUNT/name itself;
  // `mkdir -p` continues after EEXIST.
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
  // Whether the kernel must look up the job's view again for this caller. The kernel has resolved the view's name from
  // its cache, which holds the result for the view's owner, but lookup_job() would give this caller a symlink. Returns
  // true at most a few times a second for each job, because each new lookup also makes the kernel drop the names that
  // it has cached below the owner's view.
  bool needs_new_lookup(const Caller& caller, Job& job) const;

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
