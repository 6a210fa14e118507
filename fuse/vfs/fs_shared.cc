// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fuse.h>

#include <utility>

#include "fuse/vfs/filesystem.h"
#include "store/sys/sys.h"

// Attributes of files of class `shared` (SharedFiles).
namespace cacheshim {

// A process sees what it has written itself.
std::optional<Result<Attributes>> Filesystem::attr_of_writer(const Request& request, NodeRef ref,
                                                             const NodeInfo& info) {
  const auto own = shared_files_.own_copy_of(ref.node, request.caller.tid);
  if (!own) return std::nullopt;
  if (!own->st) return Result<Attributes>(own->st.error());
  return handle_attr(ref, info, *own->st, own->in_upper);
}

Result<Attributes> Filesystem::handle_attr(NodeRef ref, const NodeInfo& info, struct stat st,
                                                 bool in_upper) {
  {  // staged, it has a name in staging
    const std::shared_lock lock(info.job->overlay.mutex());
    CACHESHIM_TRY(object, common_object(ref.node, info));
    CACHESHIM_TRY(opened, sys::stat_fd(object->get()));
    const bool has_name = is_named(ref.node, info, opened) || is_named(ref.node, info, st);
    st.st_nlink = has_name ? 1 : 0;
  }
  CACHESHIM_TRY(shown, show(ref, info, st, in_upper));
  return Attributes{shown, 0, st.st_ino};
}

// truncate(2) and ftruncate(2). Nothing where it is another kind of change or file.
std::optional<Result<Attributes>> Filesystem::try_change_shared(
    NodeRef ref, const NodeInfo& info, const struct stat& attr, int to_set, FileHandle* handle) {
  if (handle != nullptr && handle->shared) {
    const std::lock_guard lock(handle->shared->mutex);
    const bool resizes = (to_set & FATTR_SIZE) != 0;
    const auto changed = [&]() -> Result<Attributes> {
      if (resizes) CACHESHIM_CHECK(handle->shared->stage(handle->fd.get(), attr.st_size));
      CACHESHIM_CHECK(change_lock(handle->fd.get(), handle->most_bytes, attr, to_set));
      CACHESHIM_TRY(st, sys::stat_fd(handle->fd.get()));
      return handle_attr(ref, info, st, handle->in_upper);
    };
    return changed();
  }
  if ((to_set & FATTR_SIZE) == 0) return std::nullopt;
  if (info.common != Common::kShared || is_outdated(info)) return std::nullopt;
  const auto [named, object] = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return std::pair(nodes_.path(ref.node), common_object(ref.node, info));
  }();
  if (!named) return std::nullopt;
  if (!object) return object.error();
  return [&]() -> Result<Attributes> {
    const auto change = [&](int fd) {
      return change_lock(fd, most_bytes_of(info.common), attr, to_set);
    };
    CACHESHIM_TRY(st,
                  shared_files_.change_named(*named, (*object)->get(), attr.st_size, change));
    CACHESHIM_TRY(shown, show(ref, info, st, false));
    return Attributes{shown, 0, st.st_ino};
  }();
}

}  // namespace cacheshim
