// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "store/overlay/layer_upkeep.h"
#include "store/publish/publisher.h"
#include "store/sys/sys.h"

// Measures how long it takes to publish many small files at a job's end. Alternates with a `cp -r`
// of the same files to the same file system and one syncfs(2). Prints medians and their ratio.
namespace cacheshim {
namespace {

extern "C" char** environ;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kProfile = R"(name = "bench"
evidence = "run"
[[entry]]
path = "*"
complete = ["done"]
)";

struct Options {
  std::string directory = "/var/tmp";
  unsigned files = 10000;
  unsigned files_an_entry = 8;  // if 0, all files are in one directory of an unknown cache
  unsigned bytes = 2048;
  unsigned rounds = 5;
};

class Hooks final : public PublishHooks {
 public:
  bool is_being_written(dev_t, ino_t) override { return false; }
  bool wait_until_closed(dev_t, ino_t) override { return true; }
  bool note_conflict(const std::string&) override { return true; }
  bool note_why_unpublished(const std::string&, const std::string&) override { return true; }
  std::string why_refused() const override { return ""; }
  PublishingJob identity() const override { return {"bench", "0", std::nullopt}; }
  void published(const std::string&, const struct stat&) override {}
};

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "publish_bench: {}\n", what);
  std::exit(1);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void sync_all(const std::string& directory) {
  const UniqueFd fd = *sys::open_path(directory, O_RDONLY | O_DIRECTORY);
  if (::syncfs(fd.get()) == -1) fail("cannot sync");
}

void fill(const fs::path& top, const Options& options) {
  const unsigned an_entry = options.files_an_entry;
  for (unsigned number = 0; number < options.files; ++number) {
    const fs::path directory = an_entry == 0
                                   ? top / "unknown/cache"
                                   : top / "bench" / ("KEY" + std::to_string(number / an_entry));
    fs::create_directories(directory);
    const bool is_last = an_entry > 0 && number % an_entry == an_entry - 1;
    std::string text = std::to_string(number);
    text.resize(options.bytes, 'x');
    std::ofstream(directory / (is_last ? "done" : "file" + std::to_string(number))) << text;
  }
}

double copy_all(const fs::path& from, const fs::path& to) {
  const auto start = Clock::now();
  std::string words[] = {"cp", "-r", from.string(), to.string()};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  pid_t child = 0;
  int status = 0;
  if (::posix_spawnp(&child, "cp", nullptr, nullptr, argv, environ) != 0 ||
      ::waitpid(child, &status, 0) == -1 || status != 0) {
    fail("cp has failed");
  }
  sync_all(to.string());
  return seconds_since(start);
}

double publish(const fs::path& top, const Options& options, const EntryMap& entries) {
  auto opened = Store::open((top / "store").string(), "");
  if (!std::holds_alternative<Store>(opened)) fail("cannot open the store");
  const Store store = std::get<Store>(std::move(opened));
  Counters counters;
  Hooks hooks;
  Publisher publisher(store, entries, counters);
  Overlay overlay({store.base()}, entries, counters);
  overlay.set_layer(*sys::open_path((top / "upper").string(), O_RDONLY | O_DIRECTORY),
                    *sys::open_path((top / "work").string(), O_RDONLY | O_DIRECTORY));
  if (!load_layer(overlay)) fail("cannot load the layer");
  const auto start = Clock::now();
  const auto report = publisher.publish_all(overlay, hooks, true, [](auto, auto) {});
  const double seconds = seconds_since(start);
  if (report.files != options.files) fail(fmt::format("published {} files", report.files));
  return seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const Options& options) {
  std::vector<Profile> profiles;
  profiles.push_back(std::get<Profile>(parse_profile(kProfile, "bench.toml")));
  const EntryMap entries(profiles);
  std::string name = options.directory + "/cacheshim-bench-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) fail("cannot make a directory in " + options.directory);
  std::vector<double> copies, publishes;
  for (unsigned round = 0; round < options.rounds; ++round) {
    const fs::path top = fs::path(name) / std::to_string(round);
    for (const char* directory : {"store", "upper", "work"})
      fs::create_directories(top / directory);
    fill(top / "upper", options);
    sync_all(name);
    copies.push_back(copy_all(top / "upper", top / "copy"));
    publishes.push_back(publish(top, options, entries));
  }
  fs::remove_all(name);
  fmt::print(
      "{} files of {} bytes, {}: cp -r and syncfs {:.3f} s, publishing {:.3f} s, {:.2f} times\n",
      options.files, options.bytes,
      options.files_an_entry == 0 ? "in one directory"
                                  : fmt::format("{} an entry", options.files_an_entry),
      median(copies), median(publishes), median(publishes) / median(copies));
}

}  // namespace
}  // namespace cacheshim

int main(int argc, char** argv) {
  cacheshim::Options options;
  CLI::App app("Compares publishing many small files with cp -r and one syncfs");
  app.add_option("--directory", options.directory, "A directory on the file system to measure")
      ->capture_default_str();
  app.add_option("--files", options.files)->capture_default_str();
  app.add_option("--files-an-entry", options.files_an_entry, "0: all in one directory")
      ->capture_default_str();
  app.add_option("--bytes", options.bytes, "The size of each file")->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  cacheshim::run(options);
}
