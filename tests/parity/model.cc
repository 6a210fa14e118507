// SPDX-License-Identifier: Apache-2.0
// Performs random operations on both directories. Each round begins with a random base, made before
// the mount. The seed and the round's number determine the round's base and operations.
#include <err.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "tests/parity/fixture.h"
#include "tests/parity/model_action.h"
#include "tests/parity/runner.h"
#include "tests/parity/script.h"

namespace cacheshim::parity {
namespace {

constexpr unsigned kBaseActions = 120;
constexpr unsigned kActionsPerTree = 10;  // comparing whole trees is the slowest part
constexpr char kKind[] = "model";

std::mt19937 generator(const Options& options, unsigned round, bool base) {
  std::seed_seq sequence{options.seed, round, base ? 1u : 2u};
  return std::mt19937(sequence);
}

// Creates a random base with the actions that fits_a_base() allows. The base has no hard links. All modes are default
// modes, because the view's user could not open a base file with a mode such as 0600.
void make_random_base(const std::string& directory, const Options& options, unsigned round,
                      uid_t owner) {
  if (::mkdir(directory.c_str(), 0755) != 0 || ::chown(directory.c_str(), owner, owner) != 0) {
    err(2, "%s", directory.c_str());
  }
  Side side(directory);
  std::mt19937 random = generator(options, round, true);
  for (unsigned i = 0; i < kBaseActions; ++i) {
    const ModelAction action = ModelAction::random(random);
    if (action.fits_a_base()) action.carry_out(side);
  }
  settle(side.dir(), owner);
}

struct Mismatch {
  std::string native;
  std::string mount;
};

// Compares the records from line `seen` on. Returns true at the first line that differs, and sets
// `mismatch` to it. Otherwise moves `seen` to the end.
bool differ(const Side& native, const Side& mount, std::size_t& seen, Mismatch& mismatch) {
  const auto& one = native.lines();
  const auto& two = mount.lines();
  for (; seen < one.size() || seen < two.size(); ++seen) {
    mismatch.native = seen < one.size() ? one[seen] : "(nothing more)";
    mismatch.mount = seen < two.size() ? two[seen] : "(nothing more)";
    if (mismatch.native != mismatch.mount) return true;
  }
  return false;
}

std::vector<ModelAction> actions_of(const Options& options, unsigned round) {
  std::vector<ModelAction> actions;
  if (!options.script.empty()) {
    for (const std::string& line : read_script(options.script).steps) {
      actions.push_back(ModelAction::parse(line));
    }
    return actions;
  }
  std::mt19937 random = generator(options, round, false);
  for (unsigned i = 0; i < options.actions; ++i) actions.push_back(ModelAction::random(random));
  return actions;
}

// Performs the actions on both sides. Returns the number of actions after which the sides differ,
// or 0 if they never do.
std::size_t first_difference(Side& native, Side& mount, const std::vector<ModelAction>& actions,
                             Mismatch& mismatch) {
  std::size_t seen = 0;
  for (std::size_t done = 1; done <= actions.size(); ++done) {
    actions[done - 1].carry_out(native);
    actions[done - 1].carry_out(mount);
    if (done % kActionsPerTree == 1 || done == actions.size()) {
      native.tree();
      mount.tree();
    }
    if (differ(native, mount, seen, mismatch)) return done;
  }
  return 0;
}

void make_directories_of_a_try(const Options& options, unsigned round) {
  make_random_base(native_directory(options, kKind, round), options, round, ::geteuid());
  if (options.is_plain) {
    make_random_base(view_directory(options, kKind, round), options, round, ::geteuid());
  }
}

bool run_round(const Options& options, unsigned round) {
  if (options.attempt != 0) make_directories_of_a_try(options, round);
  Side native(native_directory(options, kKind, round));
  Side mount(view_directory(options, kKind, round));
  if (native.dir() < 0 || mount.dir() < 0) errx(2, "round %u was not prepared", round);
  const std::vector<ModelAction> actions = actions_of(options, round);
  Mismatch mismatch;
  const std::size_t done = first_difference(native, mount, actions, mismatch);
  if (done == 0) return true;
  std::printf("DIFFERS: seed %u round %u after %zu actions\n    native: %s\n    mount:  %s\n",
              options.seed, round, done, mismatch.native.c_str(), mismatch.mount.c_str());
  Script script{options.seed, round, {}};
  for (std::size_t i = 0; i < done; ++i) script.steps.push_back(actions[i].text());
  shrink_and_print(options, "run-model", std::move(script));
  return false;
}

}  // namespace

int prepare_model(const Options& given) {
  const Options options = for_script(given);
  for (unsigned round = options.first_round; round < options.first_round + options.rounds;
       ++round) {
    make_random_base(native_directory(options, kKind, round), options, round, options.owner);
    Options base = options;
    base.view = options.base;
    make_random_base(view_directory(base, kKind, round), base, round,
                     options.keeps_owners ? options.owner : ::geteuid());
  }
  return 0;
}

int run_model(const Options& given) {
  const Options options = for_script(given);
  std::printf("seed %u\n", options.seed);
  int different = 0;
  for (unsigned round = options.first_round; round < options.first_round + options.rounds;
       ++round) {
    if (!run_round(options, round)) ++different;
    (void)std::fflush(stdout);
  }
  std::printf("%u rounds of %u actions, %d differ\n", options.rounds, options.actions, different);
  return different;
}

}  // namespace cacheshim::parity
