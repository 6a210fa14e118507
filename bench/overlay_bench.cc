// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "store/overlay.h"
#include "store/sys.h"

// What a look-up costs in the overlay itself, without FUSE: the share of a request that is ours.
// Plain stat(2) of the same file stands beside it; compare within one run only.
namespace cacheshim {
namespace {

class Folders {
 public:
  Folders() {
    std::string name = "/tmp/cacheshim-bench-XXXXXX";
    path_ = ::mkdtemp(name.data());
    for (const char* folder : {"/base/triton/KEY", "/upper/triton/OWN", "/work"}) {
      std::filesystem::create_directories(path_ + folder);
    }
    std::ofstream(path_ + "/base/triton/KEY/x.cubin") << std::string(8192, 'x');
    std::ofstream(path_ + "/upper/triton/OWN/x.cubin") << std::string(8192, 'x');
  }
  ~Folders() { std::filesystem::remove_all(path_); }
  Folders(const Folders&) = delete;
  Folders& operator=(const Folders&) = delete;
  UniqueFd open(const char* name) const { return *sys::open_path(path_ + name, O_RDONLY); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void find(benchmark::State& state, const char* path) {
  const Folders folders;
  const std::vector<Profile> profiles;
  const EntryMap entries(profiles);
  Counters counters;
  const UniqueFd base = folders.open("/base");
  Overlay overlay({base.get()}, entries, counters);
  overlay.set_layer(folders.open("/upper"), folders.open("/work"));
  if (!overlay.load_layer()) state.SkipWithError("the layer cannot be read");
  for (auto _ : state) benchmark::DoNotOptimize(overlay.find(path));
}

void native_stat(benchmark::State& state) {
  const Folders folders;
  const std::string path = folders.path() + "/base/triton/KEY/x.cubin";
  struct stat st;
  for (auto _ : state) benchmark::DoNotOptimize(::stat(path.c_str(), &st));
}

BENCHMARK(native_stat);
BENCHMARK_CAPTURE(find, in_base, "triton/KEY/x.cubin");
BENCHMARK_CAPTURE(find, in_layer, "triton/OWN/x.cubin");
BENCHMARK_CAPTURE(find, nowhere, "triton/NONE");

}  // namespace
}  // namespace cacheshim

BENCHMARK_MAIN();
