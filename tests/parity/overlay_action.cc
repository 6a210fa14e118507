// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/overlay_action.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/sys/sys.h"
#include "tests/parity/model_action.h"
#include "tests/parity/side.h"

namespace cacheshim::parity {
namespace {

constexpr const char* kKindNames[] = {"write",     "mkdir",    "unlink", "rmdir", "rename",
                                      "noreplace", "exchange", "link",   "chmod"};

int code_of(const Status& status) { return status ? 0 : status.error().code(); }

int write_on_overlay(Overlay& overlay, const Action& action) {
  auto fd = overlay.find(action.first)
                ? open_writable(overlay, action.first, O_WRONLY | O_TRUNC)
                : changes::create_file(overlay, action.first, O_WRONLY, 0644);
  if (!fd) return fd.error().code();
  return code_of(sys::write_all(fd->get(), pattern(action.first, action.number)));
}

int change_mode_on_overlay(Overlay& overlay, const Action& action) {
  if (const Status done = copy_up(overlay, action.first); !done) return done.error().code();
  const auto opened = overlay.open(action.first, O_PATH);
  if (!opened) return opened.error().code();
  return code_of(sys::set_mode(opened->fd.get(), action.mode()));
}

}  // namespace

Action Action::random(std::mt19937& random) {
  static constexpr Kind kWeighted[] = {
      Kind::kWrite, Kind::kWrite,     Kind::kWrite,    Kind::kMkdir,  Kind::kMkdir, Kind::kUnlink,
      Kind::kRmdir, Kind::kRename,    Kind::kRename,   Kind::kRename, Kind::kLink,  Kind::kLink,
      Kind::kChmod, Kind::kNoreplace, Kind::kExchange, Kind::kUnlink, Kind::kRmdir};
  Action action;
  action.kind = kWeighted[random() % std::size(kWeighted)];
  action.first = random_model_name(random);
  action.second = random_model_name(random);
  action.number = static_cast<unsigned>(random() % 5000);
  return action;
}

std::string Action::text() const {
  return std::string(kKindNames[static_cast<int>(kind)]) + " " + first + " " + second;
}

unsigned Action::rename_flags() const {
  if (kind == Kind::kNoreplace) return RENAME_NOREPLACE;
  return kind == Kind::kExchange ? RENAME_EXCHANGE : 0;
}

int on_directory(int dir, const Action& action) {
  const char* first = action.first.c_str();
  const auto code = [](int result) { return result == -1 ? errno : 0; };
  switch (action.kind) {
    case Kind::kWrite: {
      const UniqueFd fd(
          ::openat(dir, first, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
      if (!fd) return errno;
      const std::string data = pattern(action.first, action.number);
      return ::write(fd.get(), data.data(), data.size()) < 0 ? errno : 0;
    }
    case Kind::kMkdir:
      return code(::mkdirat(dir, first, 0755));
    case Kind::kUnlink:
      return code(::unlinkat(dir, first, 0));
    case Kind::kRmdir:
      return code(::unlinkat(dir, first, AT_REMOVEDIR));
    case Kind::kLink:
      return code(::linkat(dir, first, dir, action.second.c_str(), 0));
    case Kind::kChmod:
      return code(::fchmodat(dir, first, action.mode(), 0));
    default:
      return code(::renameat2(dir, first, dir, action.second.c_str(), action.rename_flags()));
  }
}

int on_overlay(Overlay& overlay, const Action& action) {
  const auto prepared = prepare_copy_up(overlay, action.first);
  if (!prepared) return prepared.error().code();
  switch (action.kind) {
    case Kind::kWrite:
      return write_on_overlay(overlay, action);
    case Kind::kMkdir:
      return code_of(changes::make_dir(overlay, action.first, 0755));
    case Kind::kUnlink:
      return code_of(changes::remove_file(overlay, action.first));
    case Kind::kRmdir:
      return code_of(changes::remove_dir(overlay, action.first));
    case Kind::kLink:
      return code_of(changes::link(overlay, action.first, action.second));
    case Kind::kChmod:
      return change_mode_on_overlay(overlay, action);
    default:
      return code_of(changes::rename(overlay, action.first, action.second, action.rename_flags()));
  }
}

bool reaches_the_overlay(int dir, const Action& action) {
  const auto parent_is_directory = [dir](const std::string& path) {
    struct stat st {};
    const std::string parent(parent_path(path));
    return ::fstatat(dir, parent.empty() ? "." : parent.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
  };
  const auto exists = [dir](const std::string& path) {
    return ::faccessat(dir, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  };
  struct stat st {};
  const bool is_directory =
      ::fstatat(dir, action.first.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
  if (!parent_is_directory(action.first)) return false;
  if (action.kind == Kind::kWrite) return !is_directory;
  if (action.kind == Kind::kLink && is_directory) return false;
  if (action.kind < Kind::kRename || action.kind == Kind::kChmod) return true;
  if (!exists(action.first) || !parent_is_directory(action.second)) return false;
  return !(action.second + "/").starts_with(action.first + "/") &&
         !(action.first + "/").starts_with(action.second + "/");
}

}  // namespace cacheshim::parity
