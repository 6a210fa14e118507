// SPDX-License-Identifier: Apache-2.0
// Random operations on both folders. Each round begins with a random base, made before the mount;
// the seed and the round's number say what happens in it.
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

namespace cacheshim::parity {
namespace {

constexpr unsigned kBaseActions = 120;
constexpr unsigned kActionsPerTree = 10;  // comparing whole trees is the dearest part
constexpr unsigned kActionsShown = 25;

std::string round_folder(const std::string& parent, const Options& options, unsigned round) {
  return parent + "/model-" + std::to_string(options.seed) + "-" + std::to_string(round);
}

std::mt19937 generator(const Options& options, unsigned round, bool base) {
  std::seed_seq sequence{options.seed, round, base ? 1u : 2u};
  return std::mt19937(sequence);
}

// A base is what such actions left behind. No hard links: a copy-up parts the names of a base file,
// in ours as in every overlay. No modes that close a file: it stays closed to the view's user.
void make_random_base(const std::string& folder, const Options& options, unsigned round,
                      uid_t owner) {
  if (::mkdir(folder.c_str(), 0755) != 0 || ::chown(folder.c_str(), owner, owner) != 0) {
    err(2, "%s", folder.c_str());
  }
  Side side(folder);
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

// The first line that differs, if any, from `seen` on; moves `seen` to the end.
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

bool run_round(const Options& options, unsigned round) {
  Side native(round_folder(options.native, options, round));
  Side mount(round_folder(options.view, options, round));
  if (native.dir() < 0 || mount.dir() < 0) errx(2, "round %u was not prepared", round);
  std::mt19937 random = generator(options, round, false);
  std::vector<std::string> done;
  std::size_t seen = 0;
  Mismatch mismatch;
  for (unsigned i = 0; i < options.actions; ++i) {
    const ModelAction action = ModelAction::random(random);
    done.push_back(action.text());
    action.carry_out(native);
    action.carry_out(mount);
    if (i % kActionsPerTree == 0 || i + 1 == options.actions) {
      native.tree();
      mount.tree();
    }
    if (!differ(native, mount, seen, mismatch)) continue;
    std::printf("DIFFERS: seed %u round %u after %zu actions, the last of them:\n", options.seed,
                round, done.size());
    const std::size_t from = done.size() > kActionsShown ? done.size() - kActionsShown : 0;
    for (std::size_t k = from; k < done.size(); ++k) std::printf("    %s\n", done[k].c_str());
    std::printf("    native: %s\n    mount:  %s\n", mismatch.native.c_str(),
                mismatch.mount.c_str());
    return false;
  }
  return true;
}

}  // namespace

int prepare_model(const Options& options) {
  for (unsigned round = 0; round < options.rounds; ++round) {
    make_random_base(round_folder(options.native, options, round), options, round, options.owner);
    make_random_base(round_folder(options.base, options, round), options, round,
                     options.keeps_owners ? options.owner : ::geteuid());
  }
  return 0;
}

int run_model(const Options& options) {
  std::printf("seed %u\n", options.seed);
  int different = 0;
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (!run_round(options, round)) ++different;
    (void)std::fflush(stdout);
  }
  std::printf("%u rounds of %u actions, %d differ\n", options.rounds, options.actions, different);
  return different;
}

}  // namespace cacheshim::parity
