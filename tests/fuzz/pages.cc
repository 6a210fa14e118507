// SPDX-License-Identifier: Apache-2.0
// Fuzzes the readers of the files in a run directory that the preloaded library maps: the state with its name rules, a
// shadow filter, the routes. Another user may have written these files. The first byte of the input selects the file.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/direct_filter.h"
#include "common/mapped_state.h"
#include "common/name_rules.h"
#include "common/route_table.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

constexpr std::string_view kNames[] = {"triton", "tmp.1", "done-1", "x", "__grp__x.json", "KEY.lock"};

// A copy of the input with the alignment of a mapping. The copy ends where its allocation ends, so that
// AddressSanitizer reports reads beyond it.
class Mapping {
 public:
  explicit Mapping(std::string_view text) : size_(text.size()) {
    void* bytes = nullptr;
    require(::posix_memalign(&bytes, alignof(FilterHeader), size_) == 0);
    bytes_.reset(static_cast<char*>(bytes));
    if (!text.empty()) std::memcpy(bytes, text.data(), size_);
  }
  const void* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {bytes_.get(), size_}; }
  // Overwrites the bytes, as the owner of a file can do while a process has mapped it.
  void fill(char byte) { std::memset(bytes_.get(), byte, size_); }

 private:
  std::unique_ptr<char[], void (*)(void*)> bytes_{nullptr, std::free};
  std::size_t size_;
};

void apply_rules(const NameRules& rules) {
  for (const std::string_view family : kNames) {
    const auto record = rules.find(family);
    if (!record) continue;
    for (const std::string_view name : kNames) {
      (void)rules.any_applies(*record, NameRule::kMountOnly, name);
      (void)rules.any_applies(*record, NameRule::kAwaited, name);
    }
  }
}

void map_state(Mapping& mapping) {
  const auto state = mapped_state(mapping.data(), mapping.size());
  if (!state) return;
  (void)is_alive(state->alive);
  apply_rules(state->rules);
  mapping.fill('\xff');
  (void)is_alive(state->alive);
  apply_rules(state->rules);
}

void probe(const FilterView& filter) {
  ShadowProbes probes;
  probes.begin(filter);
  for (const std::string_view name : kNames) (void)probes.descend(name);
  (void)probes.finish();
  (void)probes.may_be_shadowed();
}

void map_filter(Mapping& mapping) {
  const FilterView filter = FilterView::over(mapping.data(), mapping.size());
  if (!filter) return;
  probe(filter);
  mapping.fill('\x7f');
  probe(filter);
}

void read_routes(const Mapping& mapping) {
  const auto table = RouteTable::parse(mapping.text());
  if (!table) return;
  for (std::uint32_t route = 0; route < table->size(); ++route) {
    touch(table->name(route));
    touch(table->variable(route));
    touch(table->unless(route));
    touch(table->default_path(route));
  }
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  if (size == 0) return 0;
  Mapping mapping(text_of(data + 1, size - 1));
  switch (data[0]) {
    case 's':
      map_state(mapping);
      break;
    case 'f':
      map_filter(mapping);
      break;
    case 'r':
      read_routes(mapping);
      break;
    default:
      break;
  }
  return 0;
}
