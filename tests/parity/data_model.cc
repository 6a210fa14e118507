// SPDX-License-Identifier: Apache-2.0
// Performs random steps on two files, through several descriptors and mappings at once, and compares
// the files' bytes with the expected contents. In every second round the files are in the base, so
// that they are copied up while they are open.
#include <err.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "tests/parity/data_file.h"
#include "tests/parity/runner.h"
#include "tests/parity/script.h"

namespace cacheshim::parity {
namespace {

constexpr char kKind[] = "data";
constexpr std::size_t kStepsPerCheck = 16;  // a full comparison is the slowest part

bool is_in_base(unsigned round) { return round % 2 == 1; }

std::array<std::string, kFiles> first_contents(const Options& options, unsigned round) {
  std::seed_seq sequence{options.seed, round, 1u};
  std::mt19937 random(sequence);
  std::array<std::string, kFiles> contents;
  for (std::string& bytes : contents) {
    bytes = filled(random() % 1000, random() % (random() % 2 == 0 ? kMostBytes : 3 * kBlock));
    if (bytes.size() > 8 * kBlock) bytes.replace(kBlock + 5, 4 * kBlock, 4 * kBlock, '\0');
  }
  return contents;
}

void make_files(const std::string& directory, const std::array<std::string, kFiles>& contents) {
  if (::mkdir(directory.c_str(), 0755) != 0) err(2, "%s", directory.c_str());
  for (std::size_t file = 0; file < kFiles; ++file) {
    const std::string path = directory + "/" + DataFiles::name(file);
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    const std::string& bytes = contents[file];
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      err(2, "%s", path.c_str());
    }
  }
}

std::vector<DataStep> steps_of(const Options& options, unsigned round) {
  std::vector<DataStep> steps;
  if (!options.script.empty()) {
    for (const std::string& line : read_script(options.script).steps) {
      steps.push_back(DataStep::parse(line));
    }
    return steps;
  }
  std::seed_seq sequence{options.seed, round, 2u};
  std::mt19937 random(sequence);
  // Each round begins with a read-only descriptor and a mapping, which exist before the copy-up.
  steps = {{DataCall::kOpen, {0, 0, kReadOnly}}, {DataCall::kMap, {0, 0}}};
  while (steps.size() < options.actions) steps.push_back(DataStep::random(random));
  return steps;
}

// Performs the steps up to the first wrong result. Returns the number of steps performed, or 0 if
// all results were right.
std::size_t first_wrong(DataFiles& files, const std::vector<DataStep>& steps, Wrong& wrong) {
  for (std::size_t done = 1; done <= steps.size(); ++done) {
    wrong = files.carry_out(steps[done - 1]);
    if (!wrong && (done % kStepsPerCheck == 0 || done == steps.size())) wrong = files.check_all();
    if (wrong) return done;
  }
  return 0;
}

bool run_round(const Options& options, unsigned round) {
  const auto contents = first_contents(options, round);
  const std::string directory = view_directory(options, kKind, round);
  if (!is_in_base(round) || (options.is_plain && options.attempt != 0)) {
    make_files(directory, contents);
  }
  DataFiles files(directory, contents, what_is_supported(options.native));
  const std::vector<DataStep> steps = steps_of(options, round);
  Wrong wrong;
  const std::size_t done = first_wrong(files, steps, wrong);
  if (done == 0) return true;
  std::printf("WRONG: seed %u round %u after %zu steps: %s: %s\n", options.seed, round, done,
              steps[done - 1].text().c_str(), wrong->c_str());
  Script script{options.seed, round, {}};
  for (std::size_t i = 0; i < done; ++i) script.steps.push_back(steps[i].text());
  shrink_and_print(options, "run-data", std::move(script));
  return false;
}

}  // namespace

int prepare_data(const Options& given) {
  const Options options = for_script(given);
  for (unsigned round = options.first_round; round < options.first_round + options.rounds;
       ++round) {
    if (!is_in_base(round)) continue;
    Options base = options;
    base.view = options.base;
    make_files(view_directory(base, kKind, round), first_contents(options, round));
  }
  return 0;
}

int run_data(const Options& given) {
  const Options options = for_script(given);
  std::printf("seed %u\n", options.seed);
  int wrong = 0;
  for (unsigned round = options.first_round; round < options.first_round + options.rounds;
       ++round) {
    if (!run_round(options, round)) ++wrong;
    (void)std::fflush(stdout);
  }
  std::printf("%u rounds of %u steps, %d wrong\n", options.rounds, options.actions, wrong);
  return wrong;
}

}  // namespace cacheshim::parity
