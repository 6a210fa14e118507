// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "store/overlay/changes.h"
#include "store/overlay/copy_up.h"
#include "store/overlay/layer_upkeep.h"
#include "store/overlay/overlay.h"
#include "store/sys/sys.h"

// Measures lookups and changes in the overlay itself, without FUSE: the part of a request that
// cacheshim adds. Compare the results with a plain stat(2) of the same file in the same run.
namespace cacheshim {
namespace {

class Directories {
 public:
  Directories() {
    std::string name = "/tmp/cacheshim-bench-XXXXXX";
    path_ = ::mkdtemp(name.data());
    for (const char* directory : {"/base/triton/KEY", "/upper/triton/OWN", "/work"}) {
      std::filesystem::create_directories(path_ + directory);
    }
    std::ofstream(path_ + "/base/triton/KEY/x.cubin") << std::string(8192, 'x');
    std::ofstream(path_ + "/upper/triton/OWN/x.cubin") << std::string(8192, 'x');
  }
  ~Directories() { std::filesystem::remove_all(path_); }
  Directories(const Directories&) = delete;
  Directories& operator=(const Directories&) = delete;
  UniqueFd open(const char* name) const { return *sys::open_path(path_ + name, O_RDONLY); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct World {
  World() {
    overlay.set_layer(directories.open("/upper"), directories.open("/work"));
    if (!load_layer(overlay)) std::abort();
  }
  Directories directories;
  const std::vector<Profile> profiles;
  const EntryMap entries{profiles};
  Counters counters;
  const UniqueFd base = directories.open("/base");
  Overlay overlay{{base.get()}, entries, counters};
};

void find(benchmark::State& state, const char* path) {
  const World world;
  for (auto _ : state) benchmark::DoNotOptimize(world.overlay.find(path));
}

void list(benchmark::State& state) {
  const World world;
  for (int i = 0; i < 7; ++i) {
    std::ofstream(world.directories.path() + "/base/triton/KEY/" + std::to_string(i)) << i;
  }
  for (auto _ : state) benchmark::DoNotOptimize(world.overlay.list("triton/KEY"));
}

void copy_up(benchmark::State& state) {
  World world;
  std::ofstream(world.directories.path() + "/base/triton/KEY/x.cubin")
      << std::string(30 << 10, 'x');
  for (auto _ : state) {
    benchmark::DoNotOptimize(open_writable(world.overlay, "triton/KEY/x.cubin", O_RDWR));
    state.PauseTiming();
    if (!drop_file(world.overlay, "triton/KEY/x.cubin")) state.SkipWithError("not copied up");
    state.ResumeTiming();
  }
}

// Creates a file as Triton does: creates a key's directory and a temporary directory in it, creates
// the file there, renames the file, and removes the temporary directory.
void put(benchmark::State& state) {
  World world;
  int number = 0;
  for (auto _ : state) {
    const std::string key = "triton/NEW" + std::to_string(number++);
    (void)changes::make_dir(world.overlay, key, 0755);
    (void)changes::make_dir(world.overlay, key + "/tmp", 0755);
    (void)changes::create_file(world.overlay, key + "/tmp/x", O_WRONLY, 0644);
    (void)changes::rename(world.overlay, key + "/tmp/x", key + "/x", 0);
    if (!changes::remove_dir(world.overlay, key + "/tmp"))
      state.SkipWithError("the put has failed");
  }
}

void native_stat(benchmark::State& state) {
  const Directories directories;
  const std::string path = directories.path() + "/base/triton/KEY/x.cubin";
  struct stat st;
  for (auto _ : state) benchmark::DoNotOptimize(::stat(path.c_str(), &st));
}

BENCHMARK(native_stat);
BENCHMARK_CAPTURE(find, in_base, "triton/KEY/x.cubin");
BENCHMARK_CAPTURE(find, in_layer, "triton/OWN/x.cubin");
BENCHMARK_CAPTURE(find, nowhere, "triton/NONE");
BENCHMARK(list);
BENCHMARK(copy_up);
BENCHMARK(put)->Iterations(5000);

}  // namespace
}  // namespace cacheshim

BENCHMARK_MAIN();
