// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/nodes/arena.h"
#include "fuse/nodes/closer.h"
#include "fuse/nodes/inode_numbers.h"
#include "fuse/nodes/name_index.h"
#include "fuse/nodes/node_ref.h"
#include "store/overlay/overlay_types.h"
#include "store/sys/mutex.h"

namespace cacheshim {

class Job;

enum class NodeKind : std::uint8_t {
  kRoot,         // the mount's root
  kRootLink,     // a symlink in it, answered per caller
  kJobsDir,      // .jobs
  kJobLink,      // .jobs/<job> of a job with shared uids, answered per caller
  kControlDir,   // .cacheshim
  kControlFile,  // a file in it
  kJobInfoDir,   // .cacheshim/jobs
  kJobInfo,      // a file in it
  kObject,       // an object in a job's view, including the view's root
};

// Files that belong to the base, one inode for all jobs (LockFiles).
enum class Common : std::uint8_t { kNone, kLock, kShared };

inline constexpr NodeIndex kRootNode = 1;

// A copy of a node's data: safe to use after the table's lock is released.
struct NodeInfo {
  NodeKind kind = NodeKind::kObject;
  NodeIndex parent = 0;
  Job* job = nullptr;
  std::uint64_t ino = 0;  // st_ino: constant while the node lives, across copy-up
  bool is_view_root = false;
  bool is_dir = false;
  bool removed = false;       // has no name any more
  bool was_unlinked = false;  // then: removed by a request, not from outside this view
  bool in_upper = false;
  Common common = Common::kNone;
  // An O_PATH descriptor of the object: of a removed object, if it is held; of a common object that
  // was looked up recently; otherwise null. It stays open as long as this struct exists.
  std::shared_ptr<const UniqueFd> object;

  int object_fd() const { return object ? object->get() : -1; }
};

// The objects behind the names of a job's view, as far as the kernel has looked them up.
//
// A node has a name (parent and component) and finds its object by walking from the job's roots, so
// it holds no descriptor and is not affected by copy-up and publishing. Hard links share one node,
// with further names beside the first. A node whose last name is removed keeps an O_PATH descriptor
// instead. Any process may remove and recreate common files at any time, while others open them:
// their nodes hold a descriptor from the lookup on, so that an open gets the file that the lookup
// found. The kernel keeps such nodes long after their files are closed. Therefore, once the table
// holds kMostHeld descriptors, it closes the one with the oldest lookup; that file is then found by
// its name again.
//
// Thread-safe by one reader-writer lock of its own; it is never held across a system call. Finding a node,
// looking a known one up again and forgetting some of its lookups take it shared; only adding and removing nodes and names
// takes it exclusively. Names change only while the job's Overlay::mutex() is held exclusively, so that a path
// stays valid as long as the caller holds that mutex. Takes about 130 bytes per file, including its name.
class NodeTable {
 public:
  static constexpr std::size_t kMostHeld = 1024;  // descriptors of common files

  NodeTable();
  ~NodeTable();

  // Whether the kernel may name this node. Other methods require that.
  bool is_known(NodeIndex node) const;
  NodeInfo info(NodeIndex node) const;
  // Returns the path from the view's root, "" for the root itself. Errors: ESTALE for a node
  // without a name.
  Result<std::string> path(NodeIndex node) const;
  // Returns the component of its lookup, for other nodes than objects too.
  std::string name(NodeIndex node) const;

  // Makes the mount's root the root of this job's view: an object like those below it.
  void make_root_view(Job* job, const struct stat& st, bool in_upper);

  // Returns a node of the mount's own directories; found again by parent and name. Counts one
  // lookup.
  NodeIndex intern_own(NodeIndex parent, std::string_view name, NodeKind kind, Job* job = nullptr);
  // Returns the node of an object that a lookup has found. Counts one lookup. If the name leads to
  // another object than before (the base has replaced it), it gets a new node.
  NodeIndex intern(NodeIndex parent, std::string_view name, Job* job, const Found& found);
  // Call before intern() for an object of the layer that was just created. If a node of this name
  // exists, the new object is not a copy of its object: that object was removed by another process
  // since the kernel's lookup.
  void part(NodeIndex parent, std::string_view name, const struct stat& made);
  // The same as intern() of a common file; `object` is an O_PATH descriptor of it.
  struct CommonFile {
    Common kind;
    struct stat st;
    UniqueFd object;
  };
  NodeIndex intern_common(NodeIndex parent, std::string_view name, Job* job, CommonFile file);
  // Returns a node for a file that never had a name, `object` being an O_PATH descriptor of it.
  // Without a descriptor the node stands for an object that does not exist yet.
  NodeIndex intern_nameless(Job* job, const struct stat& st, UniqueFd object);
  // Counts one more lookup of an existing node.
  void count_lookup(NodeIndex node);
  // The kernel drops `count` lookups; frees the node when none are left. Does nothing for an unknown
  // node.
  void forget(NodeIndex node, std::uint64_t count);

  // Changes of names, with the overlay's mutex held exclusively.
  void add_link(NodeIndex node, NodeIndex parent, std::string_view name, const struct stat& st);
  // `removed` replaces the name if it was the last one.
  struct Removed {
    UniqueFd object;  // an O_PATH descriptor, or none
    bool in_upper = false;
    bool has_links = false;  // the file has further names
  };
  void remove(NodeIndex parent, std::string_view name, Removed removed);
  // The node's first name no longer leads to it: another process has removed or replaced the file
  // outside this view. `object` is an O_PATH descriptor of it, taken from an open handle.
  void lose_name(NodeIndex node, UniqueFd object);
  // A rename has made the node's file a lock file of the base, `file`; or the job's own file, whose
  // locks remain those of the inode.
  void become_common(NodeIndex node, CommonFile file);
  void become_own(NodeIndex node, const struct stat& st);
  // The base's object of a node without a name was copied: `object` is the layer's own.
  void copied_nameless(NodeIndex node, const struct stat& st, UniqueFd object);
  void rename(NodeIndex parent, std::string_view name, NodeIndex new_parent,
              std::string_view new_name);
  void exchange(NodeIndex parent, std::string_view name, NodeIndex new_parent,
                std::string_view new_name);

  // Returns 0 if the kernel knows no such node.
  NodeIndex find(NodeIndex parent, std::string_view name) const;
  NodeIndex find_path(NodeIndex view_root, std::string_view path) const;

  // Whether its path still leads to the node's object, or to its copy in the layer.
  bool is_current(NodeIndex node, const struct stat& st, bool in_upper) const;
  // Whether a file of the base has the same size and times as at the last call; true at the first
  // call.
  bool has_same_data(NodeIndex node, const struct stat& st) const;
  // Whether the object, which is the layer's own, is known to have no file capabilities. This is
  // set when the daemon has checked or created it, until its attributes are changed or its data
  // move.
  bool lacks_capabilities(NodeIndex node) const;
  void set_lacks_capabilities(NodeIndex node, bool lacks) const;
  // The inode whose locks the node's file uses, because the job has, or had, the file under the
  // name of a lock file too; nothing for all other nodes. Set from then on, and for a second node
  // of that inode.
  struct Inode {
    dev_t device;
    ino_t inode;
  };
  std::optional<Inode> locked_inode(NodeIndex node) const;
  void lock_by_inode(NodeIndex node) const;
  // Whether a process has locked the file since the kernel knows it.
  bool takes_locks(NodeIndex node) const;
  void set_takes_locks(NodeIndex node) const;
  // The number of open handles whose close the kernel does not report (FLUSH).
  std::uint32_t silent_handles(NodeIndex node) const;
  void count_silent_handle(NodeIndex node, bool is_opened) const;
  // The object's data have moved: open handles see another epoch and open the file again.
  void moved(NodeIndex node, const struct stat& st, bool in_upper);
  // The same for a name that now leads to the base. A file with further names, which stay in the
  // layer, loses this one: it now belongs to another file.
  void published(NodeIndex parent, std::string_view name, const struct stat& base);
  std::uint32_t epoch(NodeIndex node) const;
  // Returns the inode number that `name` is shown with, if the directory's file system reports
  // `listed`.
  std::uint64_t shown_inode(NodeIndex parent, std::string_view name, dev_t device, ino_t listed);
  // Adds the file system whose numbers are shown unchanged, unless an object of another one came
  // first.
  void add_device(dev_t device);

  // Removes all names of a job's objects except the roots' and the directories': its layer is gone.
  // Returns their number, including directories.
  std::size_t drop_all(const Job* job, NodeIndex view_root);
  // The first name of every object of a job except its root.
  struct NamedNode {
    NodeIndex node;
    NodeIndex parent;
    std::string name;
  };
  std::vector<NamedNode> all_of(const Job* job) const;

  std::uint32_t size() const { return arena_.in_use(); }

 private:
  struct Name {
    NodeIndex parent;
    std::string_view component;
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    friend bool operator==(const FileId&, const FileId&) = default;
  };
  struct FileIdHash {
    std::size_t operator()(const FileId& id) const {
      return id.inode * 0x9e3779b97f4a7c15ULL ^ id.device;
    }
  };
  // A file of the base is a separate one in each job.
  struct LinkedFile {
    FileId id;
    const Job* job;
    friend bool operator==(const LinkedFile&, const LinkedFile&) = default;
  };
  struct LinkedFileHash {
    std::size_t operator()(const LinkedFile& file) const {
      return FileIdHash{}(file.id) ^ std::hash<const Job*>{}(file.job);
    }
  };
  // Data that few nodes have.
  struct Extra {
    std::vector<std::pair<NodeIndex, std::string>> names;  // further ones, of a hard link
    std::shared_ptr<const UniqueFd> object;
    std::optional<std::list<NodeIndex>::iterator> held;  // in held_
  };
  struct Node {
    std::uint64_t lookups = 0;  // changed under the shared lock too, by std::atomic_ref
    std::uint64_t ino = 0;
    ino_t inode = 0;  // with `device`: the object that holds the data now
    Job* job = nullptr;
    std::unique_ptr<char[]> name;  // NUL-terminated
    std::unique_ptr<Extra> extra;
    NodeIndex parent = 0;        // 0 for a node without a name
    std::uint32_t children = 0;  // nodes that have this one as a name's parent
    std::uint32_t epoch = 0;     // read without the lock, by std::atomic_ref
    std::uint32_t silent = 0;    // handles; changed in the same way
    std::uint32_t stamp = 0;     // hash of the base file's size and times; changed in the same way
    InodeNumbers::Place device = 0;
    NodeKind kind = NodeKind::kObject;
    std::uint8_t lacks_capabilities = 0;  // without the lock, by std::atomic_ref
    std::uint8_t takes_locks = 0;         // likewise
    std::uint8_t locks_by_inode = 0;      // likewise
    Common common = Common::kNone;
    bool was_unlinked : 1 = false;
    bool is_dir : 1 = false;
    bool in_upper : 1 = false;
    bool named : 1 = false;
  };

  Node& at(NodeIndex node) const { return arena_.get(node); }
  bool is_in_use(NodeIndex node) const REQUIRES_SHARED(mutex_) {
    const Node* const found = arena_.find(node);
    return found != nullptr && found->name != nullptr;
  }
  FileId id_of(const Node& node) const REQUIRES_SHARED(mutex_) {
    return {numbers_.device(node.device), node.inode};
  }
  std::uint64_t number_of(const Node& node) const {
    return InodeNumbers::number(node.device, node.inode);
  }
  std::uint64_t number_of(const OriginLog::Origin& origin) REQUIRES(mutex_) {
    return InodeNumbers::number(numbers_.find_or_add(origin.device), origin.inode);
  }
  void set_id(Node& node, const struct stat& st) REQUIRES(mutex_);
  void move_id(NodeIndex node, const struct stat& st) REQUIRES(mutex_);
  Extra& extra_of(Node& node) REQUIRES(mutex_);
  bool has_name(const Node& node, const Name& name) const REQUIRES_SHARED(mutex_);
  NodeIndex make(const Name& name, NodeKind kind, Job* job) REQUIRES(mutex_);
  void attach(NodeIndex node, const Name& name) REQUIRES(mutex_);
  void detach(NodeIndex node, const Name& name, UniqueFd object) REQUIRES(mutex_);
  void drop_child(NodeIndex parent) REQUIRES(mutex_);
  void free_if_unused(NodeIndex node) REQUIRES(mutex_);
  bool is_view_root(NodeIndex index) const REQUIRES_SHARED(mutex_);
  bool is_same(const Node& node, const FileId& id, bool is_dir, bool in_upper) const
      REQUIRES_SHARED(mutex_);
  bool is_unchanged(const Node& node, const struct stat& st, bool in_upper) const
      REQUIRES_SHARED(mutex_);
  NodeIndex find_locked(const Name& name) const REQUIRES_SHARED(mutex_);
  NodeIndex intern_locked(const Name& name, Job* job, const Found& found, Common kind)
      REQUIRES(mutex_);
  void rename_locked(const Name& from, const Name& to) REQUIRES(mutex_);
  std::vector<std::shared_ptr<const UniqueFd>> take_doomed() REQUIRES(mutex_) {
    return std::exchange(doomed_, {});
  }
  // Makes `object` the descriptor of a common node, in place of one that was closed.
  void hold(NodeIndex index, UniqueFd object) REQUIRES(mutex_);
  void let_go(Extra& extra) REQUIRES(mutex_);
  static std::uint64_t hash_of(const Name& name);
  template <class Function>
  void for_each_of(const Job* job, Function&& function) const REQUIRES_SHARED(mutex_);

  mutable SharedMutex mutex_{LockRank::kNodeTable};
  Arena<Node> arena_;
  NameIndex by_name_ GUARDED_BY(mutex_);
  InodeNumbers numbers_ GUARDED_BY(mutex_);
  // Files with several names.
  std::unordered_map<LinkedFile, NodeIndex, LinkedFileHash> hard_links_ GUARDED_BY(mutex_);
  // To be closed after the lock is released: the last close may take long.
  std::vector<std::shared_ptr<const UniqueFd>> doomed_ GUARDED_BY(mutex_);
  // Common nodes with a descriptor, in the order of their lookups.
  std::list<NodeIndex> held_ GUARDED_BY(mutex_);
  std::size_t freed_ GUARDED_BY(mutex_) = 0;  // since memory was last given back
  Closer closer_;
};

}  // namespace cacheshim
