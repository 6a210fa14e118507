// SPDX-License-Identifier: Apache-2.0
// Makes random changes to a plain directory and to an Overlay, without FUSE. After each change,
// both must have the same tree, including hard links. Sometimes the program creates the Overlay
// again from its layer on disk, as the next daemon would. The lowers, one to three depending on the
// seed, must be unchanged at the end.
//
//   overlay_model [FIRST_SEED [SEEDS]]
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "store/overlay/layer_upkeep.h"
#include "store/overlay/overlay.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"
#include "tests/parity/overlay_action.h"
#include "tests/parity/side.h"

namespace cacheshim::parity {
namespace {

constexpr unsigned kActions = 600;
constexpr unsigned kLowerActions = 150;
constexpr unsigned kMostLowers = 3;

struct Line {
  std::string path;
  std::string text;
  struct stat st;
};

std::string describe(const struct stat& st, int fd) {
  char text[64];
  (void)std::snprintf(text, sizeof text, " %06o", static_cast<unsigned>(st.st_mode));
  if (!S_ISREG(st.st_mode)) return text;
  const auto bytes = sys::read_all(fd);
  return text + (" " + std::to_string(st.st_nlink) + " links ") +
         (bytes ? fingerprint(*bytes) : std::string("unreadable"));
}

// Returns one line per name, sorted by path. If a file has several names, the lines of all names except the first refer
// to the first name.
std::vector<std::string> to_text(std::vector<Line> lines) {
  std::sort(lines.begin(), lines.end(),
            [](const Line& left, const Line& right) { return left.path < right.path; });
  std::map<std::pair<dev_t, ino_t>, std::string> first_names;
  std::vector<std::string> texts;
  for (const Line& line : lines) {
    const auto [first, is_new] =
        first_names.try_emplace({line.st.st_dev, line.st.st_ino}, line.path);
    const bool is_link = S_ISREG(line.st.st_mode) && !is_new;
    texts.push_back(line.path + line.text + (is_link ? " as " + first->second : ""));
  }
  return texts;
}

void walk_directory(int dir, const std::string& path, std::vector<Line>& lines) {
  const auto directory = sys::open_beneath(dir, path, O_RDONLY | O_DIRECTORY);
  const auto entries = sys::list_dir(directory->get());
  for (const auto& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    const auto object = sys::open_beneath(dir, child, O_PATH | O_NOFOLLOW);
    const auto st = sys::stat_fd(object->get());
    const auto fd = S_ISREG(st->st_mode) ? sys::reopen(object->get(), O_RDONLY) : UniqueFd();
    lines.push_back({child, describe(*st, fd->get()), *st});
    if (S_ISDIR(st->st_mode)) walk_directory(dir, child, lines);
  }
}

void walk_overlay(const Overlay& overlay, const std::string& path, std::vector<Line>& lines) {
  const auto entries = overlay.list(path);
  if (!entries) return lines.push_back({path, " cannot be listed", {}});
  for (const auto& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    const auto opened = overlay.open(child, O_RDONLY);
    const auto found = overlay.find(child);
    if (!opened || !found) {
      lines.push_back({child, " is listed but not found", {}});
      continue;
    }
    lines.push_back({child, describe(found->st, opened->fd.get()), found->st});
    if (S_ISDIR(found->st.st_mode)) walk_overlay(overlay, child, lines);
  }
}

// Replaces cacheshim's markers in the tree `dir` with those of the kernel's overlayfs.
void use_markers_of_the_kernel(int dir) {
  const auto entries = sys::list_dir(dir);
  for (const auto& entry : *entries) {
    if (entry.type == DT_DIR) {
      const auto child = sys::open_beneath(dir, entry.name, O_RDONLY | O_DIRECTORY);
      use_markers_of_the_kernel(child->get());
    } else if (entry.name == kOpaqueMarker) {
      if (!sys::set_xattr(dir, "trusted.overlay.opaque", "y", 0)) err(2, "trusted.overlay.opaque");
      (void)sys::unlink_at(dir, entry.name);
    } else if (is_reserved_name(entry.name)) {
      (void)sys::unlink_at(dir, entry.name);
      const std::string hidden = entry.name.substr(kWhiteoutPrefix.size());
      if (!sys::make_node_at(dir, hidden, S_IFCHR | 0600, 0)) err(2, "a whiteout device");
    }
  }
}

// The same tree twice: as a plain directory, and as a stack of lowers with a layer on top. Each
// lower above the bottom one is a former layer.
class World {
 public:
  World(std::string top, unsigned seed) : top_(std::move(top)), seed_(seed), random_(seed) {
    native_ = make_directory("native");
    const unsigned count = 1 + seed % kMostLowers;
    lowers_.push_back(make_directory("lower0"));
    for (unsigned i = 0; i < kLowerActions; ++i) {
      const Action action = Action::random(random_);
      // With several lowers, hard links can break, because a lower may replace one of the names.
      if (action.kind == Kind::kLink && count > 1) continue;
      (void)on_directory(native_.get(), action);
      (void)on_directory(lowers_.front().get(), action);
    }
    for (unsigned i = 1; i < count; ++i) add_lower(i, i == count - 1);
    before_ = lower_trees();
    layer_ = "upper";
    make_overlay();
  }

  bool run() {
    for (unsigned i = 0; i < kActions; ++i) {
      if (!step(Action::random(random_))) return false;
      if (random_() % 40 == 0) {
        done_.push_back("-- a new overlay from the layer on disk");
        make_overlay();
      }
      if (!same_trees()) return false;
    }
    return lower_trees() == before_ || fail("untouched lowers", "changed ones");
  }

 private:
  UniqueFd make_directory(const std::string& name) const {
    std::filesystem::create_directories(top_ + "/" + name);
    return UniqueFd(::open((top_ + "/" + name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  void make_overlay() {
    std::vector<int> lowers;
    for (const UniqueFd& lower : lowers_) lowers.push_back(lower.get());
    overlay_ = std::make_unique<Overlay>(lowers, entries_, counters_);
    overlay_->set_layer(make_directory(layer_), make_directory(layer_ + "-work"));
    if (!load_layer(*overlay_)) errx(2, "load_layer");
  }

  void add_lower(unsigned number, bool may_link) {
    layer_ = "lower" + std::to_string(number);
    make_overlay();
    for (unsigned i = 0; i < kLowerActions; ++i) {
      const Action action = Action::random(random_);
      if (may_link || action.kind != Kind::kLink) (void)step(action);
    }
    lowers_.insert(lowers_.begin(), make_directory(layer_));
    if (seed_ % 2 == 0) use_markers_of_the_kernel(lowers_.front().get());
  }

  bool step(const Action& action) {
    if (!reaches_the_overlay(native_.get(), action)) return true;
    done_.push_back(action.text());
    const int native = on_directory(native_.get(), action);
    const int overlay = on_overlay(*overlay_, action);
    return native == overlay || fail(::strerrorname_np(native), ::strerrorname_np(overlay));
  }

  std::vector<std::string> lower_trees() const {
    std::vector<std::string> trees;
    for (const UniqueFd& lower : lowers_) {
      std::vector<Line> lines;
      walk_directory(lower.get(), "", lines);
      for (std::string& text : to_text(std::move(lines))) trees.push_back(std::move(text));
    }
    return trees;
  }

  bool same_trees() const {
    std::vector<Line> native_lines;
    std::vector<Line> overlay_lines;
    walk_directory(native_.get(), "", native_lines);
    walk_overlay(*overlay_, "", overlay_lines);
    const auto native = to_text(std::move(native_lines));
    const auto overlay = to_text(std::move(overlay_lines));
    for (std::size_t i = 0; i < std::max(native.size(), overlay.size()); ++i) {
      const std::string one = i < native.size() ? native[i] : "(nothing more)";
      const std::string two = i < overlay.size() ? overlay[i] : "(nothing more)";
      if (one != two) return fail(one, two);
    }
    return true;
  }

  bool fail(const std::string& native, const std::string& overlay) const {
    std::printf("DIFFERS: seed %u after %zu actions, the last of them:\n", seed_, done_.size());
    const std::size_t from = done_.size() > 25 ? done_.size() - 25 : 0;
    for (std::size_t i = from; i < done_.size(); ++i) std::printf("    %s\n", done_[i].c_str());
    std::printf("    native:  %s\n    overlay: %s\n", native.c_str(), overlay.c_str());
    return false;
  }

  const std::string top_;
  const unsigned seed_;
  std::mt19937 random_;
  UniqueFd native_;
  std::vector<UniqueFd> lowers_;  // the topmost first
  std::string layer_;
  const std::vector<Profile> no_profiles_;
  const EntryMap entries_{no_profiles_};
  Counters counters_;
  std::unique_ptr<Overlay> overlay_;
  std::vector<std::string> done_;
  std::vector<std::string> before_;
};

int check(unsigned first, unsigned count) {
  int different = 0;
  for (unsigned seed = first; seed < first + count; ++seed) {
    char top[] = "/tmp/overlay-model-XXXXXX";
    if (::mkdtemp(top) == nullptr) err(2, "%s", top);
    if (!World(top, seed).run()) ++different;
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
