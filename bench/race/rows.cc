// SPDX-License-Identifier: Apache-2.0
#include "bench/race/rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/race/calls.h"
#include "common/unique_fd.h"

// Each row measures one kind of operation of a compile cache; docs/benchmarks.md describes the
// rows. A row that uses the same names repeatedly builds its paths before the clock starts, so that
// only the calls are measured. The row `import` is an exception.
namespace cacheshim::race {
namespace {

constexpr unsigned kHotKeys = 200;
constexpr size_t kEntryBytes = 8192;
constexpr size_t kLargeFileMiB = 256;
constexpr size_t kMiB = 1048576;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  size_t below(size_t bound) { return static_cast<size_t>(mix(state_++) % bound); }

 private:
  uint64_t state_;
};

Random random_of(const Runner& runner) { return Random(mix(runner.seed + runner.index)); }

unsigned hot_keys(const Tree& tree) { return std::min(kHotKeys, tree.keys); }

std::vector<std::string> hot_files(const Tree& tree) {
  std::vector<std::string> paths;
  for (unsigned key = 0; key < hot_keys(tree); ++key) {
    for (unsigned file = 0; file < kFilesPerKey; ++file) {
      paths.push_back(tree.file_path(key, file));
    }
  }
  return paths;
}

std::vector<std::string> hot_directories(const Tree& tree) {
  std::vector<std::string> paths;
  for (unsigned key = 0; key < hot_keys(tree); ++key) paths.push_back(tree.key_path(key));
  return paths;
}

std::vector<std::string> absent_hot_files(const Tree& tree) {
  std::vector<std::string> paths = hot_files(tree);
  for (std::string& path : paths) path += ".absent";
  return paths;
}

// Generates names that no earlier run has used, if each run has a different seed.
class NewKeys {
 public:
  explicit NewKeys(const Runner& runner)
      : first_(mix(runner.seed) + (uint64_t{runner.index} << 32)) {}
  std::string next() { return key_name(first_ + made_++); }

 private:
  uint64_t first_;
  uint64_t made_ = 0;
};

using Call = void (*)(const std::string& path);

Step at_random(const Runner& runner, std::vector<std::string> paths, Call call) {
  return [paths = std::move(paths), random = random_of(runner), call]() mutable {
    call(paths[random.below(paths.size())]);
    return true;
  };
}

void read_it(const std::string& path) { (void)read_file(path); }  // throws on failure
void check_listed(size_t entries, const std::string& path) {
  if (entries != kFilesPerKey) throw std::runtime_error("'" + path + "' does not list its files");
}
void list_it(const std::string& path) { check_listed(list_directory(path), path); }
void scan_it(const std::string& path) { check_listed(scan_directory(path), path); }

void no_warm_up(const Tree&) {}

void warm_hot_files(const Tree& tree) {
  for (const std::string& path : hot_files(tree)) read_it(path);
}

void warm_hot_directories(const Tree& tree) {
  for (const std::string& path : hot_directories(tree)) list_it(path);
}

void warm_known_keys(const Tree& tree) {
  for (const std::string& path : hot_directories(tree)) expect_present(path);
}

void warm_absent_files(const Tree& tree) {
  for (const std::string& path : absent_hot_files(tree)) expect_absent(path);
}

// Returns a step that calls `visit(tree, key, file)` for this runner's next file.
template <typename Visit>
Step each_own_file(const Runner& runner, unsigned files_per_key, Visit visit) {
  return [tree = runner.tree, key = runner.index, file = 0U, count = runner.count, files_per_key,
          visit]() mutable {
    if (key >= tree.keys) return false;
    visit(tree, key, file);
    if (++file == files_per_key) {
      file = 0;
      key += count;
    }
    return true;
  };
}

Step first_touch(const Runner& runner) {
  return each_own_file(runner, kFilesPerKey, [](const Tree& tree, unsigned key, unsigned file) {
    read_it(tree.file_path(key, file));
  });
}

Step hit(const Runner& runner) { return at_random(runner, hot_files(runner.tree), read_it); }

Step stat_file(const Runner& runner) {
  return at_random(runner, hot_files(runner.tree), expect_present);
}

Step miss_key(const Runner& runner) {
  return [root = runner.tree.root + '/', keys = NewKeys(runner)]() mutable {
    expect_absent(root + keys.next());
    return true;
  };
}

Step miss_file(const Runner& runner) {
  return [directories = hot_directories(runner.tree), random = random_of(runner),
          keys = NewKeys(runner)]() mutable {
    expect_absent(directories[random.below(directories.size())] + '/' + keys.next());
    return true;
  };
}

Step miss_again(const Runner& runner) {
  return at_random(runner, absent_hot_files(runner.tree), expect_absent);
}

Step list_key(const Runner& runner) {
  return at_random(runner, hot_directories(runner.tree), list_it);
}
Step scan_key(const Runner& runner) {
  return at_random(runner, hot_directories(runner.tree), scan_it);
}

// Finds and loads a module as CPython does: stat and listing of the directory, then stat and read
// of the file.
Step import_file(const Runner& runner) {
  return [tree = runner.tree, random = random_of(runner)]() mutable {
    const auto key = static_cast<unsigned>(random.below(hot_keys(tree)));
    const std::string directory = tree.key_path(key);
    expect_present(directory);
    list_it(directory);
    const std::string file = tree.file_path(key, static_cast<unsigned>(random.below(kFilesPerKey)));
    expect_present(file);
    read_it(file);
    return true;
  };
}

// Puts a file into a key's directory as Triton does.
void put(const std::string& directory, const std::string& name, std::string_view bytes) {
  const std::string temporary = directory + "/tmp.pid_" + std::to_string(::getpid()) +
                                "_0b7c5e1a-6d0f-4c52-9f5e-2f1f6b3c9a57";
  ensure_directory(directory);
  make_directory(temporary);
  write_file(temporary + '/' + name, bytes);
  rename_file(temporary + '/' + name, directory + '/' + name);
  remove_directory(temporary);
}

Step commit_file(const Runner& runner, unsigned file, std::string bytes) {
  return [root = runner.tree.root + '/', keys = NewKeys(runner), name = file_name(file),
          bytes = std::move(bytes)]() mutable {
    put(root + keys.next(), name, bytes);
    return true;
  };
}

Step commit(const Runner& runner) {
  return commit_file(runner, 0, std::string(content(kEntryBytes)));
}

Step commit_published(const Runner& runner) {
  return commit_file(runner, kCompletingFile, completing_content(kEntryBytes));
}

// Writes every file except the completing one, which a view may handle differently.
Step overwrite(const Runner& runner) {
  return each_own_file(runner, kCompletingFile, [](const Tree& tree, unsigned key, unsigned file) {
    put(tree.key_path(key), file_name(file), content(kEntryBytes));
  });
}

Step copy_up(const Runner& runner) {
  return each_own_file(runner, kFilesPerKey, [](const Tree& tree, unsigned key, unsigned file) {
    const std::string path = tree.file_path(key, file);
    UniqueFd opened = open_file(path, O_RDWR);
    write_whole(opened.get(), content(16), path);
    close_file(std::move(opened), path);
  });
}

std::string large_file(const Tree& tree, unsigned runner) {
  return tree.root + '/' + key_name(mix(tree.keys + runner)) + "/large";
}

// Writes one MiB per step; the last step closes the file.
Step write_large(const Runner& runner) {
  const std::string path = large_file(runner.tree, runner.index);
  ensure_directory(path.substr(0, path.rfind('/')));
  auto file = std::make_shared<UniqueFd>();
  return [path, file, block = std::string(kMiB, 'x'), written = size_t{0}]() mutable {
    if (written == kLargeFileMiB) return false;
    if (written == 0) *file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_whole(file->get(), block, path);
    if (++written == kLargeFileMiB) close_file(std::move(*file), path);
    return true;
  };
}

void warm_large_file(const Tree& tree) {
  const Step step = write_large({.tree = tree, .index = 0, .count = 1, .seed = 0});
  while (step()) continue;
}

// Reads one MiB per step, and reopens the file at its end.
Step read_large(const Runner& runner) {
  const std::string path = large_file(runner.tree, 0);
  auto file = std::make_shared<UniqueFd>();
  return [path, file, block = std::string(kMiB, '\0')]() mutable {
    if (!*file) *file = open_file(path, O_RDONLY);
    size_t filled = 0;
    while (filled < block.size()) {
      const ssize_t got = ::read(file->get(), block.data() + filled, block.size() - filled);
      if (got <= 0) throw std::runtime_error("'" + path + "' cannot be read whole");
      filled += static_cast<size_t>(got);
    }
    if (::lseek(file->get(), 0, SEEK_CUR) == static_cast<off_t>(kLargeFileMiB * kMiB)) {
      file->reset();
    }
    return true;
  };
}

constexpr std::array kRows = {
    Row{"first", no_warm_up, first_touch, true},
    Row{"hit", warm_hot_files, hit, false},
    Row{"stat", warm_hot_files, stat_file, false},
    Row{"miss-key", no_warm_up, miss_key, false},
    Row{"miss-file", warm_known_keys, miss_file, false},
    Row{"miss-again", warm_absent_files, miss_again, false},
    Row{"list", warm_hot_directories, list_key, false},
    Row{"scan", warm_hot_files, scan_key, false},
    Row{"import", warm_hot_files, import_file, false},
    Row{"commit", no_warm_up, commit, false},
    Row{"commit-published", no_warm_up, commit_published, false},
    Row{"overwrite", no_warm_up, overwrite, false},
    Row{"copy-up", no_warm_up, copy_up, false},
    Row{"write", no_warm_up, write_large, true},
    Row{"read", warm_large_file, read_large, false},
};

}  // namespace

const Row* find_row(const std::string& name) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& one) { return name == one.name; });
  return row == kRows.end() ? nullptr : row;
}

}  // namespace cacheshim::race
