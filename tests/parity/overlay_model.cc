// SPDX-License-Identifier: Apache-2.0
// Random changes to a plain folder and to an Overlay, without FUSE: both must hold the same tree
// after each. Every so often the overlay is made anew from what its layer holds on disk, as by the
// next daemon. The base must be untouched at the end.
//
//   overlay_model [FIRST_SEED [SEEDS]]
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "store/overlay.h"
#include "store/sys.h"
#include "tests/parity/model_action.h"
#include "tests/parity/side.h"

namespace cacheshim::parity {
namespace {

constexpr unsigned kActions = 600;
constexpr unsigned kBaseActions = 80;

UniqueFd open_folder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

enum class Kind { kWrite, kMkdir, kUnlink, kRmdir, kRename, kNoreplace, kExchange, kLink, kChmod };
constexpr const char* kKindNames[] = {"write",     "mkdir",    "unlink", "rmdir", "rename",
                                      "noreplace", "exchange", "link",   "chmod"};

struct Action {
  Kind kind;
  std::string first;
  std::string second;
  unsigned number;

  static Action random(std::mt19937& random) {
    static constexpr Kind kWeighted[] = {
        Kind::kWrite,    Kind::kWrite, Kind::kWrite,  Kind::kMkdir,  Kind::kMkdir,
        Kind::kUnlink,   Kind::kRmdir, Kind::kRename, Kind::kRename, Kind::kNoreplace,
        Kind::kExchange, Kind::kLink,  Kind::kChmod,  Kind::kUnlink, Kind::kRmdir};
    Action action;
    action.kind = kWeighted[random() % std::size(kWeighted)];
    action.first = random_model_name(random);
    action.second = random_model_name(random);
    action.number = static_cast<unsigned>(random() % 5000);
    return action;
  }
  std::string text() const {
    return std::string(kKindNames[static_cast<int>(kind)]) + " " + first + " " + second;
  }
  unsigned rename_flags() const {
    if (kind == Kind::kNoreplace) return RENAME_NOREPLACE;
    return kind == Kind::kExchange ? RENAME_EXCHANGE : 0;
  }
  mode_t mode() const { return 0700 | (number & 077); }
};

// The calls on a plain folder; 0 or an errno.
int on_folder(int dir, const Action& action) {
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

int code_of(const Status& status) { return status ? 0 : status.error().code(); }

int write_on_overlay(Overlay& overlay, const Action& action) {
  auto fd = overlay.find(action.first) ? overlay.open_writable(action.first, O_WRONLY | O_TRUNC)
                                       : overlay.create_file(action.first, O_WRONLY, 0644);
  if (!fd) return fd.error().code();
  return code_of(sys::write_all(fd->get(), pattern(action.first, action.number)));
}

int change_mode_on_overlay(Overlay& overlay, const Action& action) {
  if (const Status done = overlay.copy_up(action.first); !done) return done.error().code();
  const auto opened = overlay.open(action.first, O_PATH);
  if (!opened) return opened.error().code();
  return code_of(sys::set_mode(opened->fd.get(), action.mode()));
}

// The same on the overlay. The checks are those that the kernel makes before it asks a file system.
int on_overlay(Overlay& overlay, const Action& action) {
  switch (action.kind) {
    case Kind::kWrite:
      return write_on_overlay(overlay, action);
    case Kind::kMkdir:
      return code_of(overlay.make_dir(action.first, 0755));
    case Kind::kUnlink:
      return code_of(overlay.remove_file(action.first));
    case Kind::kRmdir:
      return code_of(overlay.remove_dir(action.first));
    case Kind::kLink:
      return code_of(overlay.link(action.first, action.second));
    case Kind::kChmod:
      return change_mode_on_overlay(overlay, action);
    default:
      return code_of(overlay.rename(action.first, action.second, action.rename_flags()));
  }
}

// Names that the kernel would not pass on: a folder into itself, a parent that is no folder.
bool reaches_the_overlay(int dir, const Action& action) {
  const auto parent_is_folder = [dir](const std::string& path) {
    struct stat st {};
    const std::string parent(parent_path(path));
    return ::fstatat(dir, parent.empty() ? "." : parent.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
  };
  const auto exists = [dir](const std::string& path) {
    return ::faccessat(dir, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  };
  struct stat st {};
  const bool is_folder =
      ::fstatat(dir, action.first.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
  if (!parent_is_folder(action.first)) return false;
  if (action.kind == Kind::kWrite) return !is_folder;
  if (action.kind == Kind::kLink && is_folder) return false;
  if (action.kind < Kind::kRename || action.kind == Kind::kChmod) return true;
  if (!exists(action.first) || !parent_is_folder(action.second)) return false;
  return !(action.second + "/").starts_with(action.first + "/") &&
         !(action.first + "/").starts_with(action.second + "/");
}

std::string describe(const std::string& path, const struct stat& st, int fd) {
  char text[64];
  (void)std::snprintf(text, sizeof text, " %06o", static_cast<unsigned>(st.st_mode));
  if (!S_ISREG(st.st_mode)) return path + text;
  const auto bytes = sys::read_all(fd);
  return path + text + " " + (bytes ? fingerprint(*bytes) : std::string("unreadable"));
}

void walk_folder(int dir, const std::string& path, std::vector<std::string>& lines) {
  const auto folder = sys::open_beneath(dir, path, O_RDONLY | O_DIRECTORY);
  const auto entries = sys::list_dir(folder->get());
  for (const auto& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    const auto fd = sys::open_beneath(dir, child, O_RDONLY | O_NOFOLLOW);
    const auto st = sys::stat_fd(fd->get());
    lines.push_back(describe(child, *st, fd->get()));
    if (S_ISDIR(st->st_mode)) walk_folder(dir, child, lines);
  }
}

void walk_overlay(const Overlay& overlay, const std::string& path,
                  std::vector<std::string>& lines) {
  const auto entries = overlay.list(path);
  if (!entries) return lines.push_back(path + " cannot be listed");
  for (const auto& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    const auto opened = overlay.open(child, O_RDONLY);
    const auto found = overlay.find(child);
    if (!opened || !found) {
      lines.push_back(child + " is listed but not found");
      continue;
    }
    lines.push_back(describe(child, found->st, opened->fd.get()));
    if (S_ISDIR(found->st.st_mode)) walk_overlay(overlay, child, lines);
  }
}

class World {
 public:
  World(const std::string& top, unsigned seed) : random_(seed) {
    for (const char* name : {"native", "base", "upper", "work"}) {
      std::filesystem::create_directory(top + "/" + name);
    }
    native_ = open_folder(top + "/native");
    base_ = open_folder(top + "/base");
    for (unsigned i = 0; i < kBaseActions; ++i) {
      Action action = Action::random(random_);
      if (action.kind == Kind::kLink) continue;  // hard links of the base part at copy-up
      (void)on_folder(native_.get(), action);
      (void)on_folder(base_.get(), action);
    }
    top_ = top;
    walk_folder(base_.get(), "", base_before_);
    make_overlay();
  }

  bool run(unsigned seed) {
    for (unsigned i = 0; i < kActions; ++i) {
      const Action action = Action::random(random_);
      if (!reaches_the_overlay(native_.get(), action)) continue;
      done_.push_back(action.text());
      const int native = on_folder(native_.get(), action);
      const int overlay = on_overlay(*overlay_, action);
      if (native != overlay)
        return fail(seed, ::strerrorname_np(native), ::strerrorname_np(overlay));
      if (random_() % 40 == 0) {
        done_.push_back("-- a new overlay from the layer on disk");
        make_overlay();
      }
      if (!same_trees(seed)) return false;
    }
    std::vector<std::string> base_after;
    walk_folder(base_.get(), "", base_after);
    return base_after == base_before_ || fail(seed, "an untouched base", "a changed one");
  }

 private:
  void make_overlay() {
    overlay_ = std::make_unique<Overlay>(std::vector{base_.get()}, entries_, counters_);
    overlay_->set_layer(open_folder(top_ + "/upper"), open_folder(top_ + "/work"));
    if (!overlay_->load_layer()) errx(2, "load_layer");
  }

  bool same_trees(unsigned seed) {
    std::vector<std::string> native;
    std::vector<std::string> overlay;
    walk_folder(native_.get(), "", native);
    walk_overlay(*overlay_, "", overlay);
    std::sort(native.begin(), native.end());
    std::sort(overlay.begin(), overlay.end());
    for (std::size_t i = 0; i < std::max(native.size(), overlay.size()); ++i) {
      const std::string one = i < native.size() ? native[i] : "(nothing more)";
      const std::string two = i < overlay.size() ? overlay[i] : "(nothing more)";
      if (one != two) return fail(seed, one, two);
    }
    return true;
  }

  bool fail(unsigned seed, const std::string& native, const std::string& overlay) const {
    std::printf("DIFFERS: seed %u after %zu actions, the last of them:\n", seed, done_.size());
    const std::size_t from = done_.size() > 25 ? done_.size() - 25 : 0;
    for (std::size_t i = from; i < done_.size(); ++i) std::printf("    %s\n", done_[i].c_str());
    std::printf("    native:  %s\n    overlay: %s\n", native.c_str(), overlay.c_str());
    return false;
  }

  std::mt19937 random_;
  std::string top_;
  UniqueFd native_;
  UniqueFd base_;
  const std::vector<Profile> no_profiles_;
  const EntryMap entries_{no_profiles_};
  Counters counters_;
  std::unique_ptr<Overlay> overlay_;
  std::vector<std::string> done_;
  std::vector<std::string> base_before_;
};

int check(unsigned first, unsigned count) {
  int different = 0;
  for (unsigned seed = first; seed < first + count; ++seed) {
    char top[] = "/tmp/overlay-model-XXXXXX";
    if (::mkdtemp(top) == nullptr) err(2, "%s", top);
    if (!World(top, seed).run(seed)) ++different;
    std::filesystem::remove_all(top);
  }
  std::printf("%u rounds of %u actions, %d differ\n", count, kActions, different);
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cacheshim::parity

int main(int argc, char** argv) {
  (void)::umask(0);
  const auto number = [&](int index, unsigned otherwise) {
    return index < argc ? static_cast<unsigned>(std::stoul(argv[index])) : otherwise;
  };
  return cacheshim::parity::check(number(1, 1), number(2, 30));
}
