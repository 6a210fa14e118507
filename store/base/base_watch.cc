// SPDX-License-Identifier: Apache-2.0
#include "store/base/base_watch.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <utility>

#include "store/base/base_watch_modes.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

class NoWatch final : public BaseWatch {
 public:
  WatchMode mode() const override { return WatchMode::kNone; }
  bool ensure(const std::string&) override { return false; }
};

}  // namespace

std::unique_ptr<BaseWatch> BaseWatch::start(EventLoop& loop, const std::vector<int>& directories,
                                            WatchMode best, Callback changed) {
  std::unique_ptr<BaseWatch> watch;
  if (best == WatchMode::kFanotify) watch = start_fanotify(loop, directories, changed);
  if (!watch && best != WatchMode::kNone) watch = start_inotify(loop, directories, changed);
  if (!watch) watch = std::make_unique<NoWatch>();
  return watch;
}

void add_change(std::vector<BaseChange>& changes, BaseChange change) {
  if (is_reserved_name(change.name)) {
    if (change.kind == BaseChange::Kind::kContent) return;  // a marker's contents have no meaning
    std::string hidden = change.name.substr(kWhiteoutPrefix.size());
    // The marker of an opaque directory, or of a long name, does not contain the names that it hides.
    if (is_reserved_name(hidden)) return changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
    change.name = std::move(hidden);
  }
  changes.push_back(std::move(change));
}

bool is_local_file_system(int fd) {
  // The magic numbers (statfs(2)) of file systems that a second machine may write to. Sources:
  // linux/magic.h and the file systems' own sources.
  constexpr std::array<unsigned long, 16> kShared = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xfe534d42,  // SMB2
      0xff534d42,  // CIFS
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x00c36400,  // Ceph
      0x01021997,  // 9P
      0x5346414f,  // AFS
      0x73757245,  // Coda
      0x7461636f,  // OCFS2
      0x01161970,  // GFS2
      0xaad7aaea,  // PanFS
      0xbacbacbc,  // VMHGFS
      0x65735546,  // FUSE, which may be sshfs or virtiofs
  };
  struct statfs st {};
  if (::fstatfs(fd, &st) == -1) return false;
  const auto type = static_cast<unsigned long>(st.f_type) & 0xffffffffUL;
  return std::find(kShared.begin(), kShared.end(), type) == kShared.end();
}

}  // namespace cacheshim
