// SPDX-License-Identifier: Apache-2.0
#include "store/sys/rename_flags.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace cacheshim::sys {
namespace {

bool is_unsupported(const Status& renamed) { return renamed.failed_with(EINVAL); }

bool is_one_object(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

// Before NFS version 4.1, a request that the client retransmits can fail with EEXIST although the first transmission
// succeeded. So EEXIST counts as success if the new name already leads to `object`.
Status link_new(int dir, const std::string& name, int new_dir, const std::string& new_name,
                const struct stat& object) {
  const Status linked = link_at(dir, name, new_dir, new_name);
  if (linked.failed_with(EPERM) || linked.failed_with(EOPNOTSUPP)) return Errno(EINVAL);
  if (!linked.failed_with(EEXIST)) return linked;
  const auto found = stat_at(new_dir, new_name);
  return found && is_one_object(*found, object) ? Status() : linked;
}

Status rename_directory(int dir, const std::string& name, int new_dir,
                        const std::string& new_name) {
  const Status renamed = rename_at(dir, name, new_dir, new_name);
  const bool exists = renamed.failed_with(ENOTEMPTY) || renamed.failed_with(ENOTDIR);
  return exists ? Status(Errno(EEXIST)) : renamed;
}

// make() creates two files with unique names, and link() gives one of them a third name. The destructor removes all
// three.
class Probe {
 public:
  explicit Probe(int dir) : dir_(dir) {
    static std::atomic<std::uint64_t> next{0};
    const std::string stem = fmt::format("probe-{}-{}-", ::getpid(), next++);
    for (int i = 0; i < 3; ++i) names_[i] = fmt::format("{}{}", stem, i);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    for (const std::string& name : names_) (void)unlink_at(dir_, name);  // a name may not exist
  }

  Status make() const {
    for (const std::string* name : {&names_[0], &names_[1]}) {
      CACHESHIM_TRY(file, open_beneath(dir_, *name, O_WRONLY | O_CREAT | O_EXCL, 0600));
    }
    return {};
  }
  Status exchange() const { return rename_at(dir_, names_[0], dir_, names_[1], RENAME_EXCHANGE); }
  // Fails with EEXIST if the file system has the flag.
  Status rename_onto_other() const {
    return rename_at(dir_, names_[0], dir_, names_[1], RENAME_NOREPLACE);
  }
  Status link() const { return link_at(dir_, names_[0], dir_, names_[2]); }

 private:
  int dir_;
  std::string names_[3];
};

}  // namespace

std::string_view to_string(RenameSupport support) {
  switch (support) {
    case RenameSupport::kFlags:
      return "flags";
    case RenameSupport::kLinks:
      return "links";
    case RenameSupport::kNone:
      return "none";
  }
  return "";
}

Result<RenameSupport> probe_renames(int dir) {
  const Probe probe(dir);
  CACHESHIM_CHECK(probe.make());
  const Status exchanged = probe.exchange();
  if (!exchanged && !is_unsupported(exchanged)) return exchanged.error();
  const bool keeps_names = probe.rename_onto_other().failed_with(EEXIST);
  if (exchanged && keeps_names) return RenameSupport::kFlags;
  return keeps_names || probe.link() ? RenameSupport::kLinks : RenameSupport::kNone;
}

Status rename_new_at(int dir, const std::string& name, int new_dir, const std::string& new_name) {
  const Status renamed = rename_at(dir, name, new_dir, new_name, RENAME_NOREPLACE);
  if (!is_unsupported(renamed)) return renamed;
  CACHESHIM_TRY(object, stat_at(dir, name));
  if (S_ISDIR(object.st_mode)) return rename_directory(dir, name, new_dir, new_name);
  CACHESHIM_CHECK(link_new(dir, name, new_dir, new_name, object));
  return unlink_at(dir, name);
}

// If the last step fails, undoes the first one. If the undoing fails too, for example because another process has
// created `to`, the caller gets only the first error.
Status displace_at(const NameAt& from, const NameAt& to, const NameAt& aside) {
  const auto exchange = [&] {
    return rename_at(from.dir, from.name, to.dir, to.name, RENAME_EXCHANGE);
  };
  const Status exchanged = exchange();
  if (exchanged) {
    const Status moved = rename_at(from.dir, from.name, aside.dir, aside.name);
    if (!moved) (void)exchange();
    return moved;
  }
  if (!is_unsupported(exchanged)) return exchanged;
  CACHESHIM_CHECK(rename_at(to.dir, to.name, aside.dir, aside.name));
  const Status renamed = rename_new_at(from.dir, from.name, to.dir, to.name);
  if (!renamed) (void)rename_new_at(aside.dir, aside.name, to.dir, to.name);
  return renamed;
}

}  // namespace cacheshim::sys
