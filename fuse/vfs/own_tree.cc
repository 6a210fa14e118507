// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/own_tree.h"

#include <dirent.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "common/names.h"
#include "fuse/nodes/open_flags.h"
#include "store/overlay/changes.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Timeouts in seconds. An answer that depends on the caller is not cached.
constexpr double kAskAlways = 0;
constexpr double kKeep = 60;
constexpr double kKeepJob = 1;  // short, because only a lookup starts an ended job again

constexpr std::array<const char*, 8> kControlFiles = {"version", "stats",    "metrics", "status",
                                                      "flights", "profiles", "routes",  "control"};

}  // namespace

bool OwnTree::is_profile_name(const std::string& name) const {
  return mount_.entries.find_profile(name) != nullptr;
}

std::string OwnTree::view_name(const Job& job, ViewSlot slot) const {
  if (!job.views.shares_uids()) return job.id;
  return fmt::format("{}@{}", job.id, job.views.view(slot).uid.value_or(0));
}

Result<std::shared_ptr<Job>> OwnTree::job_of(const Request& request) {
  return mount_.rights.ensure_active(mount_.rights.claim_of(request.caller),
                                     mount_.limits.account(request.caller.uid));
}

std::shared_ptr<Job> OwnTree::find_job_of(const Request& request) {
  return mount_.jobs.find(std::string(mount_.rights.claim_of(request.caller).job.view()));
}

bool OwnTree::needs_new_lookup(const Caller& caller, Job& job) const {
  return job.views.is_closed_to(caller.uid) && mount_.rights.leads_elsewhere(caller, job.id) &&
         job.use.may_redirect();
}

struct stat OwnTree::own_attr(NodeIndex node, const NodeInfo& info) const {
  struct stat st {};
  st.st_ino = info.ino;
  st.st_nlink = 1;
  st.st_uid = sys::own_uid();  // an id that exists in the daemon's user namespace
  st.st_gid = sys::own_gid();
  st.st_atim.tv_sec = st.st_mtim.tv_sec = st.st_ctim.tv_sec = mount_.started;
  st.st_blksize = 4096;
  switch (info.kind) {
    case NodeKind::kRootLink:
    case NodeKind::kJobLink:
      st.st_mode = S_IFLNK | 0777;
      break;
    case NodeKind::kControlFile:
      st.st_mode = S_IFREG | (mount_.nodes.name(node) == "control" ? 0666 : 0444);
      break;
    case NodeKind::kJobInfo:
      st.st_mode = S_IFREG | 0444;
      break;
    case NodeKind::kRoot:
      st.st_mode = S_IFDIR | 01777;  // so that the kernel forwards mkdir to make_in_root()
      break;
    default:
      st.st_mode = S_IFDIR | 0755;
  }
  return st;
}

Entry OwnTree::own_entry(NodeIndex parent, const std::string& name, NodeKind kind, double timeout,
                         Job* job) {
  Entry entry{};
  const NodeIndex node = mount_.nodes.intern_own(parent, name, kind, job);
  entry.ino = encode({node, 0});
  entry.attr = own_attr(node, mount_.nodes.info(node));
  entry.attr_timeout = kKeep;
  entry.entry_timeout = timeout;
  return entry;
}

Result<Entry> OwnTree::lookup_own(const Request& request, NodeRef parent, const NodeInfo& info,
                                  const std::string& name) {
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
      if (const auto job = mount_.jobs.find(name)) {
        return own_entry(parent.node, name, NodeKind::kJobInfo, kKeep, job.get());
      }
      return Errno(ENOENT);
    default:
      return Errno(ENOTDIR);
  }
}

Result<Entry> OwnTree::lookup_root(const Request& request, const std::string& name) {
  if (name == kJobsName) return own_entry(kRootNode, name, NodeKind::kJobsDir, kKeep);
  if (name == kControlName) return own_entry(kRootNode, name, NodeKind::kControlDir, kKeep);
  if (is_profile_name(name)) return own_entry(kRootNode, name, NodeKind::kRootLink, kKeep);
  // Any other name exists if the caller's view has it.
  CACHESHIM_TRY(job, job_of(request));
  {
    const ReaderLock lock(job->overlay.mutex());
    CACHESHIM_CHECK(job->overlay.find(name));
  }
  return own_entry(kRootNode, name, NodeKind::kRootLink, kAskAlways);
}

// A job starts when one of its own processes, or root, first looks it up. Other users get ENOENT if the job is unknown,
// and EACCES if it is known. They get EACCES even while the job has no owner (after `job start` by root), because a
// job's id is not a secret.
Result<std::shared_ptr<Job>> OwnTree::find_open_job(const Caller& caller, const JobClaim& claim,
                                                    const std::string& id,
                                                    const LookupOfJob& lookup) {
  auto job = mount_.jobs.find(id);
  const bool may_belong = caller.uid == 0 || !is_of_another_uid(id, caller.uid);
  // A process that was given the separate job uid-<uid>.<id> continues to use it after another daemon has begun to
  // serve the mount.
  const bool is_own = owner_of_id(id) == caller.uid && !is_own_job(id);
  const bool is_named = caller.uid == 0 || is_own || claim.job.view() == id;
  const bool belongs = may_belong && (is_named || (lookup.makes && may_begin(caller, id)));
  if (belongs && lookup.begins) {
    CACHESHIM_TRY(begun, mount_.jobs.ensure_active(id, claim, mount_.limits.account(caller.uid)));
    job = begun;
  }
  if (job == nullptr) return Errno(ENOENT);
  if (!belongs && !job->views.may_change(caller.uid)) return Errno(EACCES);
  return job;
}

bool OwnTree::may_begin(const Caller& caller, const std::string& id) const {
  return mount_.rights.claim_of(caller, id).named.empty();
}

// For a known user of the job, skips claim_of(), which reads /proc.
Result<Entry> OwnTree::lookup_job(const Request& request, const std::string& name, bool make) {
  const Caller caller = request.caller;
  const auto at = name.find('@');
  const bool is_whole = at == std::string::npos;
  const std::string id = name.substr(0, at);
  if (!is_job_id(id)) return Errno(ENOENT);
  auto job = mount_.jobs.find(id);
  if (job == nullptr || !job->life.is_active() || !job->views.may_change(caller.uid)) {
    const JobClaim claim = mount_.rights.claim_of(caller);
    if (is_whole && !make && caller.uid != 0 && claim.named.view() == id) {
      return own_entry(mount_.jobs_dir, name + "@", NodeKind::kJobLink, kAskAlways);
    }
    CACHESHIM_TRY(found, find_open_job(caller, claim, id, {.begins = is_whole, .makes = make}));
    job = found;
  }
  const ViewSlot slot = job->views.enter(caller);
  mount_.nodes.charge_to(*job, mount_.limits.account(job->views.owner().value_or(0)));
  if (is_whole && job->views.shares_uids()) {
    return own_entry(mount_.jobs_dir, name + "@", NodeKind::kJobLink, kAskAlways, job.get());
  }
  if (!is_whole && name != view_name(*job, slot)) return Errno(EACCES);
  const View view = job->views.view(slot);
  struct stat st;
  {
    const ReaderLock lock(job->overlay.mutex());
    CACHESHIM_TRY(found, job->overlay.find(""));
    st = view.show(found.st, found.in_upper, true);
  }
  const NodeIndex node = mount_.nodes.intern_own(mount_.jobs_dir, id, NodeKind::kObject, job.get());
  st.st_ino = mount_.nodes.info(node).ino;
  Entry entry{};
  entry.ino = encode({node, slot});
  entry.attr = st;
  // The kernel must look up a view without an owner each time, so that the daemon learns who uses the view first, and
  // can then keep all other users out.
  entry.entry_timeout = view.uid ? kKeepJob : kAskAlways;
  entry.attr_timeout = kKeepJob;
  return entry;
}

void OwnTree::complete_job(EntryCompletion completion, const Result<Entry>& entry) {
  if (!entry) return completion.complete(entry);
  Job* const job = mount_.nodes.info(decode(entry->ino).node).job;
  if (job == nullptr) return completion.complete(entry);  // a symlink to another job
  mount_.claim_invalidation.answer_entered(
      *job, 0, [pending = share(std::move(completion)), entry] { pending->complete(entry); });
}

// Replies after the invalidation, because the kernel may have cached the name as absent in the view.
void OwnTree::make_in_root(const Request& request, const std::string& name, mode_t mode,
                           EntryCompletion completion) {
  const auto found = job_of(request);
  if (!found) return completion.complete(found.error());
  Job& job = **found;
  (void)job.views.enter(request.caller);
  job.record_owner();
  const Status made = [&]() -> Status {
    const WriterLock lock(job.overlay.mutex());
    CACHESHIM_CHECK(job.ensure_layer(mount_.store.layers()));
    return changes::make_dir(job.overlay, name, mode);
  }();
  if (!made) return completion.complete(made.error());
  mount_.invalidation.name_changed(
      job, "", name, {encode({kRootNode, 0})},
      [pending = share(std::move(completion))] { pending->complete(Errno(EEXIST)); });
}

Result<std::string> OwnTree::link_target(const Request& request, NodeIndex node,
                                         const NodeInfo& info) {
  if (info.kind == NodeKind::kJobLink) return target_of_job_link(request, node);
  CACHESHIM_TRY(job, job_of(request));
  const ViewSlot slot = job->views.enter(request.caller);
  return fmt::format("{}/{}/{}", kJobsName, view_name(*job, slot), mount_.nodes.name(node));
}

// The node's name is the job's id and "@".
Result<std::string> OwnTree::target_of_job_link(const Request& request, NodeIndex node) {
  std::string id = mount_.nodes.name(node);
  id.pop_back();
  std::shared_ptr<Job> job;
  if (mount_.rights.leads_elsewhere(request.caller, id)) {
    CACHESHIM_TRY(own, job_of(request));
    job = own;
  } else {
    job = mount_.jobs.find(id);
  }
  return job != nullptr ? view_name(*job, job->views.enter(request.caller)) : id;
}

std::vector<ListedEntry> OwnTree::list_own(const Request& request, const NodeInfo& info) {
  std::vector<ListedEntry> listed;
  const auto add = [&](const std::string& name, unsigned char type) {
    listed.push_back({name, type, 1, 0});
  };
  if (info.kind == NodeKind::kControlDir) {
    for (const char* name : kControlFiles) add(name, DT_REG);
    add("jobs", DT_DIR);
  } else if (info.kind == NodeKind::kJobInfoDir) {
    for (const auto& job : mount_.jobs.all()) add(job->id, DT_REG);
  } else if (info.kind == NodeKind::kJobsDir) {
    for (const auto& job : mount_.jobs.all())
      add(job->id, job->views.shares_uids() ? DT_LNK : DT_DIR);
  } else if (info.kind == NodeKind::kRoot) {
    add(std::string(kJobsName), DT_DIR);
    add(std::string(kControlName), DT_DIR);
    std::set<std::string> names;
    for (const Profile& profile : mount_.entries.profiles()) names.insert(profile.name);
    const auto job = find_job_of(request);
    const Overlay base_alone(mount_.jobs.lowers(), mount_.entries, mount_.counters);
    const Overlay& overlay = job != nullptr ? job->overlay : base_alone;
    const ReaderLock lock(overlay.mutex());
    if (const auto entries = overlay.list("")) {
      for (const ListedEntry& entry : *entries) names.insert(entry.name);
    }
    for (const std::string& name : names) add(name, DT_LNK);
  }
  return listed;
}

Result<std::string> OwnTree::text_of(const Request& request, NodeIndex node, const NodeInfo& info) {
  if (info.kind == NodeKind::kJobInfo) return control_.text_of_job(*info.job, request.caller);
  return control_.text_of(mount_.nodes.name(node), request.caller);
}

Result<OpenedFile> OwnTree::open_own(const Request& request, NodeRef ref, const NodeInfo& info,
                                     int flags) {
  CACHESHIM_TRY(charge, mount_.charge(request.caller.uid, Limit::kHandles));
  OpenedFile opened;
  opened.direct_io = true;  // the text is made at the open, so st_size is 0
  if (info.kind == NodeKind::kControlFile && mount_.nodes.name(ref.node) == "control") {
    auto session = std::make_shared<ControlSession>();
    mount_.ticker.watch(session);
    opened.fh = mount_.handles.add(ControlHandle{std::move(session)}, std::move(charge));
  } else {
    if (wants_write(flags)) return Errno(EACCES);
    CACHESHIM_TRY(text, text_of(request, ref.node, info));
    opened.fh = mount_.handles.add(TextHandle{std::move(text)}, std::move(charge));
  }
  return opened;
}

}  // namespace cacheshim
