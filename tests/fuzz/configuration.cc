// SPDX-License-Identifier: Apache-2.0
// Fuzzes the parsers of profiles, the configuration file, mount options, durations and sizes. The
// first byte of the input selects the parser.
#include "cli/configuration/config.h"
#include "cli/configuration/mount_options.h"
#include "cli/configuration/overlay_options.h"
#include "cli/configuration/units.h"
#include "cli/failure.h"
#include "common/route_table.h"
#include "store/profiles/entry_map.h"
#include "store/profiles/profile.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

// A path that a job might choose, to be matched against the profile's patterns.
constexpr const char* kPath = "aa/b.tmp/KEY.lock/done-1/__grp__x.json";

void read_profile(std::string_view text) {
  auto parsed = parse_profile(text, "p.toml");
  auto* const profile = std::get_if<Profile>(&parsed);
  if (profile == nullptr) return;
  (void)profile->class_of(kPath);
  for (const EntryRule& rule : profile->entries) (void)rule.entry_built_under(kPath);
  const std::vector<Profile> profiles{*profile};
  const EntryMap entries(profiles);
  (void)entries.find(profile->name + "/" + kPath);
  const std::string routes = compile_routes(profiles);
  require(bool{RouteTable::parse(routes)});
}

// Calls `function`. A Failure is not a finding: the command prints it and exits.
template <class Function>
void refuse(Function&& function) {
  try {
    function();
  } catch (const cli::Failure&) {
    return;
  }
}

void read_options(std::string_view text) {
  const std::vector<std::string> texts{std::string(text)};
  refuse([&] { (void)cli::parse_mount_options(texts); });
  refuse([&] { (void)cli::parse_overlay_options(texts, false); });
}

void read_quantity(std::string_view text) {
  (void)cli::parse_duration(text);
  (void)cli::parse_timeout(text);
  (void)cli::parse_size(text);
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  read_selected({{'p', read_profile},
                 {'c',
                  [](std::string_view text) {
                    refuse([&] { (void)cacheshim::cli::parse_config(text, "c.toml"); });
                  }},
                 {'o', read_options},
                 {'q', read_quantity}},
                data, size);
  return 0;
}
