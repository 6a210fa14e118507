// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_table.h"

#define XXH_INLINE_ALL
#include <malloc.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "common/direct_page.h"

namespace cacheshim {
namespace {

// Inode numbers of the mount's own directories, outside the range of any backing file system.
constexpr std::uint64_t kOwnInode = std::uint64_t{1} << 62;
static_assert((kOwnInode | kRootNode) == kMountRootInode);
// After this many names are freed, malloc is asked to return memory to the system.
constexpr std::size_t kTrimAfter = 1 << 16;

std::unique_ptr<char[]> copy_of(std::string_view text) {
  auto copy = std::make_unique_for_overwrite<char[]>(text.size() + 1);
  std::memcpy(copy.get(), text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

std::shared_ptr<const UniqueFd> shared(UniqueFd fd) {
  return std::make_shared<const UniqueFd>(std::move(fd));
}

}  // namespace

NodeTable::NodeTable() {
  const NodeIndex root = arena_.allocate();  // the first: kRootNode
  Node& node = at(root);
  node.kind = NodeKind::kRoot;
  node.is_dir = true;
  node.named = true;
  node.ino = kOwnInode | root;
  node.name = copy_of("");
  node.lookups = 1;
}

NodeTable::~NodeTable() = default;

std::uint64_t NodeTable::hash_of(const Name& name) {
  return XXH3_64bits_withSeed(name.component.data(), name.component.size(), name.parent);
}

void NodeTable::set_id(Node& node, const struct stat& st) {
  node.device = numbers_.find_or_add(st.st_dev);
  node.inode = st.st_ino;
}

// The node continues to represent all names of its file.
void NodeTable::move_id(NodeIndex index, const struct stat& st) {
  Node& node = at(index);
  const auto link = hard_links_.find({id_of(node), node.job});
  const bool is_linked = link != hard_links_.end() && link->second == index;
  if (is_linked) hard_links_.erase(link);
  set_id(node, st);
  if (is_linked) hard_links_[{id_of(node), node.job}] = index;
}

NodeTable::Extra& NodeTable::extra_of(Node& node) {
  if (!node.extra) node.extra = std::make_unique<Extra>();
  return *node.extra;
}

bool NodeTable::is_known(NodeIndex index) const {
  const ReaderLock lock(mutex_);
  return is_in_use(index);
}

NodeInfo NodeTable::info(NodeIndex index) const {
  const ReaderLock lock(mutex_);
  const Node& node = at(index);
  NodeInfo info;
  info.kind = node.kind;
  info.parent = node.parent;
  info.job = node.job;
  info.ino = node.ino;
  info.removed = !node.named;
  info.is_dir = node.is_dir;
  info.in_upper = node.in_upper;
  info.was_unlinked = node.was_unlinked;
  info.common = node.common;
  if (node.extra) info.object = node.extra->object;
  info.is_view_root = is_view_root(index);
  return info;
}

bool NodeTable::is_view_root(NodeIndex index) const {
  const Node& node = at(index);
  if (node.kind != NodeKind::kObject || !node.named) return false;
  return index == kRootNode || at(node.parent).kind != NodeKind::kObject;
}

void NodeTable::make_root_view(Job* job, const struct stat& st, bool in_upper) {
  const WriterLock lock(mutex_);
  Node& root = at(kRootNode);
  root.kind = NodeKind::kObject;
  root.job = job;
  set_id(root, st);
  root.ino = number_of(root);
  root.in_upper = in_upper;
}

std::string NodeTable::name(NodeIndex index) const {
  const ReaderLock lock(mutex_);
  return at(index).name.get();
}

Result<std::string> NodeTable::path(NodeIndex index) const {
  const ReaderLock lock(mutex_);
  std::vector<std::string_view> components;
  std::size_t length = 0;
  for (;;) {
    if (is_view_root(index)) break;
    const Node& node = at(index);
    if (!node.named || node.parent == 0) return Errno(ESTALE);
    components.emplace_back(node.name.get());
    length += components.back().size() + 1;
    index = node.parent;
  }
  std::string path;
  path.reserve(length);
  for (auto it = components.rbegin(); it != components.rend(); ++it) {
    if (!path.empty()) path += '/';
    path += *it;
  }
  return path;
}

bool NodeTable::has_name(const Node& node, const Name& name) const {
  if (node.named && node.parent == name.parent && node.name.get() == name.component) return true;
  if (!node.extra) return false;
  const auto& further = node.extra->names;
  return std::any_of(further.begin(), further.end(), [&](const auto& other) {
    return other.first == name.parent && other.second == name.component;
  });
}

NodeIndex NodeTable::find_locked(const Name& name) const {
  return by_name_.find(hash_of(name), [&](NodeIndex index) {
    mutex_.assert_held_shared();
    return has_name(at(index), name);
  });
}

NodeIndex NodeTable::find(NodeIndex parent, std::string_view name) const {
  const ReaderLock lock(mutex_);
  return find_locked({parent, name});
}

NodeIndex NodeTable::find_path(NodeIndex view_root, std::string_view path) const {
  const ReaderLock lock(mutex_);
  NodeIndex node = view_root;
  while (node != 0 && !path.empty()) {
    const auto end = path.find('/');
    node = find_locked({node, path.substr(0, end)});
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  return node;
}

NodeIndex NodeTable::make(const Name& name, NodeKind kind, Job* job) {
  const NodeIndex index = arena_.allocate();
  Node& node = at(index);
  node.kind = kind;
  node.job = job;
  node.ino = kOwnInode | index;
  attach(index, name);
  return index;
}

void NodeTable::attach(NodeIndex index, const Name& name) {
  Node& node = at(index);
  if (!node.named) {
    node.parent = name.parent;
    node.name = copy_of(name.component);
    node.named = true;
    node.was_unlinked = false;
    if (node.extra && node.common == Common::kNone) node.extra->object.reset();
  } else {
    extra_of(node).names.emplace_back(name.parent, name.component);
  }
  by_name_.insert(hash_of(name), index);
  ++at(name.parent).children;
}

void NodeTable::detach(NodeIndex index, const Name& name, UniqueFd object) {
  by_name_.erase(hash_of(name), index);
  Node& node = at(index);
  const bool is_first = node.parent == name.parent && node.name.get() == name.component;
  const NodeIndex parent = name.parent;
  if (!is_first) {
    std::erase_if(node.extra->names, [&](const auto& other) {
      return other.first == name.parent && other.second == name.component;
    });
  } else if (node.extra && !node.extra->names.empty()) {
    const auto next = std::move(node.extra->names.back());
    node.extra->names.pop_back();
    node.parent = next.first;
    node.name = copy_of(next.second);
  } else {
    node.named = false;
    node.parent = 0;
    // A node keeps its descriptor: a thread may be about to use it.
    if (object && !extra_of(node).object) extra_of(node).object = shared(std::move(object));
  }
  if (object) doomed_.push_back(shared(std::move(object)));
  drop_child(parent);
}

void NodeTable::drop_child(NodeIndex parent) {
  --at(parent).children;
  free_if_unused(parent);
}

void NodeTable::free_if_unused(NodeIndex index) {
  Node& node = at(index);
  if (node.lookups > 0 || node.children > 0 || index == kRootNode) return;
  const auto link = hard_links_.find({id_of(node), node.job});
  if (link != hard_links_.end() && link->second == index) hard_links_.erase(link);
  std::vector<NodeIndex> parents;
  if (node.named) {
    parents.push_back(node.parent);
    by_name_.erase(hash_of({node.parent, node.name.get()}), index);
  }
  if (node.extra) {
    for (const auto& [parent, component] : node.extra->names) {
      parents.push_back(parent);
      by_name_.erase(hash_of({parent, component}), index);
    }
  }
  if (node.extra) {
    let_go(*node.extra);
    if (node.extra->object) doomed_.push_back(std::move(node.extra->object));
  }
  arena_.release(index);
  ++freed_;
  for (const NodeIndex parent : parents) drop_child(parent);
}

NodeIndex NodeTable::intern_own(NodeIndex parent, std::string_view component, NodeKind kind,
                                Job* job) {
  const WriterLock lock(mutex_);
  const Name name{parent, component};
  NodeIndex index = find_locked(name);
  if (index != 0 && at(index).kind != kind) {  // the job was seen again with other rights
    detach(index, name, UniqueFd());
    index = 0;
  }
  if (index == 0) index = make(name, kind, job);
  Node& node = at(index);
  node.is_dir = kind != NodeKind::kRootLink && kind != NodeKind::kJobLink;
  ++node.lookups;
  return index;
}

// Only this daemon changes a layer, and it reports every removed name. So an object in the layer in
// place of the base's is its copy, and only in the base can a name lead to a different object.
bool NodeTable::is_same(const Node& node, const FileId& id, bool is_dir, bool in_upper) const {
  if (node.is_dir != is_dir) return false;
  if (is_dir || id_of(node) == id) return true;
  return in_upper && !node.in_upper;
}

bool NodeTable::is_unchanged(const Node& node, const struct stat& st, bool in_upper) const {
  return node.is_dir == S_ISDIR(st.st_mode) && node.in_upper == in_upper &&
         id_of(node) == FileId{st.st_dev, st.st_ino};
}

NodeIndex NodeTable::intern(NodeIndex parent, std::string_view component, Job* job,
                            const Found& found) {
  const Name name{parent, component};
  {
    const ReaderLock lock(mutex_);
    const NodeIndex index = find_locked(name);
    const bool is_known = index != 0 && is_unchanged(at(index), found.st, found.in_upper);
    if (is_known && at(index).common == Common::kNone) {
      std::atomic_ref(at(index).lookups).fetch_add(1, std::memory_order_relaxed);
      return index;
    }
  }
  const WriterLock lock(mutex_);
  return intern_locked(name, job, found, Common::kNone);
}

NodeIndex NodeTable::intern_common(NodeIndex parent, std::string_view component, Job* job,
                                   CommonFile file) {
  std::vector<std::shared_ptr<const UniqueFd>> doomed;  // closed last
  const WriterLock lock(mutex_);
  const NodeIndex index = intern_locked({parent, component}, job, Found{file.st, false}, file.kind);
  hold(index, std::move(file.object));
  doomed = take_doomed();
  return index;
}

void NodeTable::hold(NodeIndex index, UniqueFd object) {
  Extra& extra = extra_of(at(index));
  if (extra.held) {
    held_.splice(held_.end(), held_, *extra.held);
  } else {
    extra.held = held_.insert(held_.end(), index);
  }
  // A node keeps its descriptor: a thread may be about to use it.
  auto own = shared(std::move(object));
  (extra.object ? doomed_.emplace_back() : extra.object) = std::move(own);
  if (held_.size() > kMostHeld) let_go(extra_of(at(held_.front())));
}

void NodeTable::let_go(Extra& extra) {
  if (!extra.held) return;
  held_.erase(*extra.held);
  extra.held.reset();
  doomed_.push_back(std::move(extra.object));
}

NodeIndex NodeTable::intern_locked(const Name& name, Job* job, const Found& found, Common kind) {
  const struct stat& st = found.st;
  const FileId id{st.st_dev, st.st_ino};
  const bool is_dir = S_ISDIR(st.st_mode);
  // A process beside the mount may link a common file to a file of another name, which the job
  // copies up.
  const bool has_links = !is_dir && st.st_nlink > 1 && kind == Common::kNone;
  const LinkedFile linked{id, job};
  NodeIndex index = find_locked(name);
  // The kind of a name changes when the job may no longer share files.
  const bool is_known =
      index != 0 && at(index).common == kind && is_same(at(index), id, is_dir, found.in_upper);
  if (index != 0 && !is_known) {
    detach(index, name, UniqueFd());
    index = 0;
  }
  if (index == 0 && has_links) {
    const auto link = hard_links_.find(linked);
    if (link != hard_links_.end()) {
      index = link->second;
      attach(index, name);
    }
  }
  if (index == 0) {
    index = make(name, NodeKind::kObject, job);
    at(index).common = kind;
    at(index).is_dir = is_dir;
    set_id(at(index), st);
    at(index).ino = found.origin ? number_of(*found.origin) : number_of(at(index));
    if (has_links) hard_links_[linked] = index;
  }
  Node& node = at(index);
  move_id(index, st);
  node.in_upper = found.in_upper;
  ++node.lookups;
  return index;
}

NodeIndex NodeTable::intern_nameless(Job* job, const struct stat& st, UniqueFd object) {
  const WriterLock lock(mutex_);
  const NodeIndex index = arena_.allocate();
  Node& node = at(index);
  node.job = job;
  node.name = copy_of("");
  node.in_upper = true;
  node.lookups = 1;
  set_id(node, st);
  node.ino = number_of(node);
  extra_of(node).object = shared(std::move(object));
  return index;
}

void NodeTable::count_lookup(NodeIndex index) {
  const ReaderLock lock(mutex_);
  std::atomic_ref(at(index).lookups).fetch_add(1, std::memory_order_relaxed);
}

void NodeTable::forget(NodeIndex index, std::uint64_t count) {
  {
    const ReaderLock lock(mutex_);
    if (!is_in_use(index)) return;
    std::atomic_ref lookups(at(index).lookups);
    std::uint64_t known = lookups.load(std::memory_order_relaxed);
    while (known > count) {
      if (lookups.compare_exchange_weak(known, known - count)) return;
    }
  }
  std::vector<std::shared_ptr<const UniqueFd>> doomed;
  bool trim = false;
  {
    const WriterLock lock(mutex_);
    Node& node = at(index);
    node.lookups -= std::min(node.lookups, count);
    free_if_unused(index);
    trim = freed_ >= kTrimAfter;
    if (trim) freed_ = 0;
    doomed = take_doomed();
  }
  closer_.close(std::move(doomed));
  if (trim) (void)::malloc_trim(0);  // 0: there was nothing to return
}

void NodeTable::rename_locked(const Name& from, const Name& to) {
  const NodeIndex index = find_locked(from);
  if (index == 0) return;
  ++at(to.parent).children;
  by_name_.erase(hash_of(from), index);
  by_name_.insert(hash_of(to), index);
  Node& node = at(index);
  const NodeIndex left = from.parent;
  if (node.parent == from.parent && node.name.get() == from.component) {
    node.parent = to.parent;
    node.name = copy_of(to.component);
  } else {
    for (auto& [parent, component] : node.extra->names) {
      if (parent != from.parent || component != from.component) continue;
      parent = to.parent;
      component = to.component;
      break;
    }
  }
  drop_child(left);
}

bool NodeTable::is_current(NodeIndex index, const struct stat& st, bool in_upper) const {
  const ReaderLock lock(mutex_);
  return is_same(at(index), {st.st_dev, st.st_ino}, S_ISDIR(st.st_mode), in_upper);
}

bool NodeTable::has_same_data(NodeIndex index, const struct stat& st) const {
  const std::array<std::int64_t, 5> state = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                                             st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
  const auto stamp = static_cast<std::uint32_t>(XXH3_64bits(state.data(), sizeof state)) | 1;
  const std::uint32_t before = std::atomic_ref(at(index).stamp).exchange(stamp);
  return before == 0 || before == stamp;
}

bool NodeTable::lacks_capabilities(NodeIndex node) const {
  return std::atomic_ref(at(node).lacks_capabilities) != 0;
}

void NodeTable::set_lacks_capabilities(NodeIndex node, bool lacks) const {
  std::atomic_ref(at(node).lacks_capabilities) = lacks ? 1 : 0;
}

void NodeTable::moved(NodeIndex index, const struct stat& st, bool in_upper) {
  const WriterLock lock(mutex_);
  Node& node = at(index);
  move_id(index, st);
  node.in_upper = in_upper;
  std::atomic_ref(node.lacks_capabilities) = 0;
  std::atomic_ref(node.epoch).fetch_add(1);
}

void NodeTable::published(NodeIndex parent, std::string_view component, const struct stat& base) {
  const WriterLock lock(mutex_);
  const Name name{parent, component};
  const NodeIndex index = find_locked(name);
  if (index == 0) return;
  Node& node = at(index);
  if (node.extra && !node.extra->names.empty()) return detach(index, name, UniqueFd());
  set_id(node, base);
  node.in_upper = false;
  std::atomic_ref(node.epoch).fetch_add(1);
}

void NodeTable::become_common(NodeIndex index, CommonFile file) {
  std::vector<std::shared_ptr<const UniqueFd>> doomed;  // closed last
  const WriterLock lock(mutex_);
  Node& node = at(index);
  const bool is_copy = id_of(node) != FileId{file.st.st_dev, file.st.st_ino};
  move_id(index, file.st);
  node.in_upper = false;
  node.common = file.kind;
  if (is_copy) std::atomic_ref(node.epoch).fetch_add(1);
  hold(index, std::move(file.object));
  doomed = take_doomed();
}

void NodeTable::become_own(NodeIndex index, const struct stat& st) {
  std::vector<std::shared_ptr<const UniqueFd>> doomed;  // closed last
  const WriterLock lock(mutex_);
  Node& node = at(index);
  move_id(index, st);
  node.in_upper = true;
  node.common = Common::kNone;
  lock_by_inode(index);
  if (node.extra) let_go(*node.extra);
  doomed = take_doomed();
}

std::uint32_t NodeTable::epoch(NodeIndex index) const {
  return std::atomic_ref(at(index).epoch).load();
}

std::uint64_t NodeTable::shown_inode(NodeIndex parent, std::string_view name, dev_t device,
                                     ino_t listed) {
  {
    const ReaderLock lock(mutex_);
    if (const NodeIndex index = find_locked({parent, name}); index != 0) return at(index).ino;
    if (const auto place = numbers_.find(device)) return InodeNumbers::number(*place, listed);
  }
  const WriterLock lock(mutex_);
  return InodeNumbers::number(numbers_.find_or_add(device), listed);
}

void NodeTable::add_device(dev_t device) {
  const WriterLock lock(mutex_);
  (void)numbers_.find_or_add(device);
}

}  // namespace cacheshim
