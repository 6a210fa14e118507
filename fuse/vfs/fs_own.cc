// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

#include "cacheshim_version.h"
#include "common/names.h"
#include "fuse/vfs/filesystem.h"
#include "store/profiles/profile_json.h"
#include "store/sys/json_text.h"
#include "store/sys/sys.h"
#include <nlohmann/json.hpp>

// The folders of the mount that are ours: the root with its symlinks, .jobs and .cacheshim.
//
// A symlink in the root answers each caller with its own job's folder: the kernel does not cache
// READLINK, so one name serves all (never set FUSE_CAP_CACHE_SYMLINKS).
namespace cacheshim {
namespace {

// What may be different for the next caller is not cached; what cannot change is.
constexpr double kAskAlways = 0;
constexpr double kKeep = 60;    // seconds
constexpr double kKeepJob = 1;  // seconds: an ended job begins again with the next look at it

constexpr std::array<const char*, 8> kControlFiles = {"version", "stats",    "metrics", "status",
                                                      "flights", "profiles", "routes",  "control"};

}  // namespace

bool Filesystem::is_profile_name(const std::string& name) const {
  return entries_.find_profile(name) != nullptr;
}

std::string Filesystem::view_name(const Job& job, ViewSlot slot) const {
  if (!job.shares_uids()) return job.id;
  return fmt::format("{}@{}", job.id, job.view(slot).uid.value_or(0));
}

// A job that root belongs to may belong, or come to belong, to another user: the first user who names its
// id can own it. Root, whose processes no mode keeps out, then has its own job instead.
JobClaim Filesystem::claim_of(const Caller& caller) {
  JobClaim claim = callers_.claim_of(caller);
  if (caller.uid != 0) return claim;
  const Job* job = jobs_.find(std::string(claim.job.view()));
  if (job != nullptr && job->is_closed_to(caller.uid)) {
    claim.job = JobId::for_uid(caller.uid);
    claim.cycle = JobId::from_text("0");
  }
  return claim;
}

Job& Filesystem::job_of(const Request& request) {
  const JobClaim claim = claim_of(request.caller);
  return jobs_.ensure_active(std::string(claim.job.view()), claim);
}

Job* Filesystem::find_job_of(const Request& request) {
  return jobs_.find(std::string(claim_of(request.caller).job.view()));
}

struct stat Filesystem::own_attr(NodeIndex node, const NodeInfo& info) const {
  struct stat st {};
  st.st_ino = info.ino;
  st.st_nlink = 1;
  st.st_uid = sys::own_uid();  // the service account: an id that exists in its user namespace
  st.st_gid = sys::own_gid();
  st.st_atim.tv_sec = st.st_mtim.tv_sec = st.st_ctim.tv_sec = started_;
  st.st_blksize = 4096;
  switch (info.kind) {
    case NodeKind::kRootLink:
    case NodeKind::kJobLink:
      st.st_mode = S_IFLNK | 0777;
      break;
    case NodeKind::kControlFile:
      st.st_mode = S_IFREG | (nodes_.name(node) == "control" ? 0666 : 0444);
      break;
    case NodeKind::kJobInfo:
      st.st_mode = S_IFREG | 0444;
      break;
    case NodeKind::kRoot:
      st.st_mode = S_IFDIR | 01777;  // so that we are asked, and can answer mkdir -p with EEXIST
      break;
    default:
      st.st_mode = S_IFDIR | 0755;
  }
  return st;
}

Entry Filesystem::own_entry(NodeIndex parent, const std::string& name, NodeKind kind,
                                       double timeout, Job* job) {
  Entry entry{};
  const NodeIndex node = nodes_.intern_own(parent, name, kind, job);
  entry.ino = encode({node, 0});
  entry.attr = own_attr(node, nodes_.info(node));
  entry.attr_timeout = kKeep;
  entry.entry_timeout = timeout;
  return entry;
}

Result<Entry> Filesystem::lookup_own(const Request& request, NodeRef parent,
                                                const NodeInfo& info, const std::string& name) {
  switch (info.kind) {
    case NodeKind::kRoot:
      return lookup_root(request, name);
    case NodeKind::kControlDir:
      if (name == "jobs") return own_entry(parent.node, name, NodeKind::kJobInfoDir, kKeep);
      if (std::find(kControlFiles.begin(), kControlFiles.end(), name) == kControlFiles.end()) {
        return Errno(ENOENT);
      }
      return own_entry(parent.node, name, NodeKind::kControlFile, kKeep);
    case NodeKind::kJobInfoDir:
      if (Job* job = jobs_.find(name)) {
        return own_entry(parent.node, name, NodeKind::kJobInfo, kKeep, job);
      }
      return Errno(ENOENT);
    default:
      return Errno(ENOTDIR);
  }
}

Result<Entry> Filesystem::lookup_root(const Request& request, const std::string& name) {
  if (name == kJobsName) return own_entry(kRootNode, name, NodeKind::kJobsDir, kKeep);
  if (name == kControlName) return own_entry(kRootNode, name, NodeKind::kControlDir, kKeep);
  if (is_profile_name(name)) return own_entry(kRootNode, name, NodeKind::kRootLink, kKeep);
  // Any other name is there if the caller's own view has it.
  Job& job = job_of(request);
  {
    const std::shared_lock lock(job.overlay.mutex());
    CACHESHIM_CHECK(job.overlay.find(name));
  }
  return own_entry(kRootNode, name, NodeKind::kRootLink, kAskAlways);
}

// A job comes into being when it itself, or root, first asks for it; to others an unknown one is just
// not there, and one that is still free, as after `job start` by root, is closed: a job's id is no
// secret. Its users are not asked what job they are of, which takes a look into /proc.
Result<Job*> Filesystem::find_open_job(const Caller& caller, const std::string& id, bool begin,
                                       bool make) {
  Job* job = jobs_.find(id);
  if (job != nullptr && job->is_active() && job->may_change(caller.uid)) return job;
  const JobClaim claim = callers_.claim_of(caller);
  const bool may_belong = caller.uid == 0 || !is_of_another_uid(id, caller.uid);
  const bool belongs = may_belong && (make || caller.uid == 0 || claim.job.view() == id);
  if (belongs && begin) job = &jobs_.ensure_active(id, claim);
  if (job == nullptr) return Errno(ENOENT);
  if (!belongs && !job->may_change(caller.uid)) return Errno(EACCES);
  return job;
}

// A job's view. `name` may be that of one uid's, "<job>@<uid>".
Result<Entry> Filesystem::lookup_job(const Request& request, const std::string& name,
                                                bool make) {
  const Caller caller = request.caller;
  const auto at = name.find('@');
  const std::string id = name.substr(0, at);
  if (!is_job_id(id)) return Errno(ENOENT);
  CACHESHIM_TRY(job, find_open_job(caller, id, at == std::string::npos, make));
  const ViewSlot slot = job->enter(caller);
  if (at == std::string::npos && job->shares_uids()) {
    return own_entry(jobs_dir_, name + "@", NodeKind::kJobLink, kAskAlways, job);
  }
  if (at != std::string::npos && name != view_name(*job, slot)) return Errno(EACCES);
  const View view = job->view(slot);
  struct stat st;
  {
    const std::shared_lock lock(job->overlay.mutex());
    CACHESHIM_TRY(found, job->overlay.find(""));
    st = view.show(found.st, found.in_upper, true);
  }
  const NodeIndex node = nodes_.intern_own(jobs_dir_, id, NodeKind::kObject, job);
  st.st_ino = nodes_.info(node).ino;
  Entry entry{};
  entry.ino = encode({node, slot});
  entry.attr = st;
  // The name of a view that is free is asked for each time, so that the first user is seen to come,
  // and nobody else comes in.
  entry.entry_timeout = view.uid ? kKeepJob : kAskAlways;
  entry.attr_timeout = kKeepJob;
  return entry;
}

void Filesystem::complete_job(EntryCompletion completion, const Result<Entry>& entry) {
  if (!entry) return completion.complete(entry);
  Job& job = *nodes_.info(decode(entry->ino).node).job;
  claim_news_.answer_entered(job, 0, [pending = share(std::move(completion)), entry] {
    pending->complete(entry);
  });
}

// `mkdir -p MOUNT/name/…`: the folder comes into the caller's view, where the name in the root then
// leads, and the caller is told that it is there: once the kernel, which has made no folder in the
// view, knows that there is one.
void Filesystem::make_in_root(const Request& request, const std::string& name, mode_t mode,
                              EntryCompletion completion) {
  Job& job = job_of(request);
  (void)job.enter(request.caller);
  job.keep_claim();
  const Status made = [&]() -> Status {
    const std::unique_lock lock(job.overlay.mutex());
    CACHESHIM_CHECK(job.ensure_layer(store_.layers()));
    return job.overlay.make_dir(name, mode);
  }();
  if (!made) return completion.complete(made.error());
  invalidation_.name_changed(
      job, "", name, {encode({kRootNode, 0})},
      [pending = share(std::move(completion))] { pending->complete(Errno(EEXIST)); });
}

std::string Filesystem::link_target(const Request& request, NodeIndex node, const NodeInfo& info) {
  if (info.kind == NodeKind::kJobLink) {
    return view_name(*info.job, info.job->enter(request.caller));
  }
  Job& job = job_of(request);
  const ViewSlot slot = job.enter(request.caller);
  return fmt::format("{}/{}/{}", kJobsName, view_name(job, slot), nodes_.name(node));
}

std::vector<ListedEntry> Filesystem::list_own(const Request& request, const NodeInfo& info) {
  std::vector<ListedEntry> listed;
  const auto add = [&](const std::string& name, unsigned char type) {
    listed.push_back({name, type, 1, 0});
  };
  if (info.kind == NodeKind::kControlDir) {
    for (const char* name : kControlFiles) add(name, DT_REG);
    add("jobs", DT_DIR);
  } else if (info.kind == NodeKind::kJobInfoDir) {
    for (const Job* job : jobs_.all()) add(job->id, DT_REG);
  } else if (info.kind == NodeKind::kJobsDir) {
    for (const Job* job : jobs_.all()) add(job->id, job->shares_uids() ? DT_LNK : DT_DIR);
  } else if (info.kind == NodeKind::kRoot) {
    add(std::string(kJobsName), DT_DIR);
    add(std::string(kControlName), DT_DIR);
    std::set<std::string> names;
    for (const Profile& profile : entries_.profiles()) names.insert(profile.name);
    const Job* job = find_job_of(request);
    const Overlay base_alone(jobs_.lowers(), entries_, counters_);
    const Overlay& overlay = job != nullptr ? job->overlay : base_alone;
    const std::shared_lock lock(overlay.mutex());
    if (const auto entries = overlay.list("")) {
      for (const ListedEntry& entry : *entries) names.insert(entry.name);
    }
    for (const std::string& name : names) add(name, DT_LNK);
  }
  return listed;
}

std::string Filesystem::text_of(NodeIndex node, const NodeInfo& info) {
  if (info.kind == NodeKind::kJobInfo) {
    return dump_json(describe_job(*info.job, options_.layers_dir), 2) + "\n";
  }
  const std::string name = nodes_.name(node);
  if (name == "stats") return stats_json(*this);
  if (name == "metrics") return stats_metrics(*this);
  if (name == "status") return status_json(*this);
  if (name == "flights") return flights_json(*this);
  if (name == kRoutesFile) return options_.routes;
  if (name == "profiles") return profiles_to_json(entries_.profiles());
  return CACHESHIM_VERSION "\n";
}

}  // namespace cacheshim
