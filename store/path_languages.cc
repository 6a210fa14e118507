// SPDX-License-Identifier: Apache-2.0
#include "store/path_languages.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>

#include "store/paths.h"

namespace cacheshim {
namespace {

constexpr std::string_view kAnyDepth = "**";
constexpr std::size_t kMostSubsets = 20000;

std::bitset<256> all_but_slash() {
  std::bitset<256> bytes;
  bytes.set();
  bytes.reset(0);
  bytes.reset('/');
  return bytes;
}

std::bitset<256> only(char c) {
  std::bitset<256> bytes;
  bytes.set(static_cast<unsigned char>(c));
  return bytes;
}

// The length of the bracket expression that `pattern` begins with; 0 where '[' stands for itself.
std::size_t bracket_length(std::string_view pattern) {
  std::size_t at = 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;
  while (at < pattern.size() && pattern[at] != ']') {
    const bool is_nested = pattern[at] == '[' && at + 1 < pattern.size() &&
                           std::string_view(":.=").find(pattern[at + 1]) != std::string_view::npos;
    const char end[] = {is_nested ? pattern[at + 1] : '\0', ']'};
    const auto close = is_nested ? pattern.find(std::string_view(end, 2), at + 2) : pattern.npos;
    at = close != pattern.npos ? close + 2 : at + (pattern[at] == '\\' ? 2 : 1);
  }
  return at < pattern.size() ? at + 1 : 0;
}

// fnmatch(3) itself decides which bytes a bracket expression matches.
std::bitset<256> bytes_of_bracket(std::string_view bracket) {
  const std::string pattern(bracket);
  std::bitset<256> bytes;
  for (unsigned byte = 1; byte < bytes.size(); ++byte) {
    const char name[] = {static_cast<char>(byte), '\0'};
    if (byte != '/' && ::fnmatch(pattern.c_str(), name, 0) == 0) bytes.set(byte);
  }
  return bytes;
}

}  // namespace

// State 0 is the start of all; language 0 holds all paths that there can be.
PathLanguages::PathLanguages() {
  (void)new_state();
  const Id valid = add();
  const State inside = add_bytes(0, all_but_slash());
  edges_[inside].push_back({all_but_slash(), inside});
  const State end = add_bytes(inside, only('/'));
  accepted_[end] = valid;
  edges_[end].push_back({all_but_slash(), inside});
}

PathLanguages::State PathLanguages::new_state() {
  edges_.emplace_back();
  empty_edges_.emplace_back();
  accepted_.emplace_back();
  return edges_.size() - 1;
}

PathLanguages::Id PathLanguages::add() { return language_count_++; }

PathLanguages::State PathLanguages::add_bytes(State from, const Bytes& bytes) {
  const State to = new_state();
  edges_[from].push_back({bytes, to});
  return to;
}

PathLanguages::State PathLanguages::add_text(State from, std::string_view text) {
  for (const char c : text) from = add_bytes(from, only(c));
  return from;
}

PathLanguages::State PathLanguages::add_name(State from, std::string_view pattern) {
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '*') {
      const State loop = new_state();
      add_empty(from, loop);
      edges_[loop].push_back({all_but_slash(), loop});
      from = loop;
      continue;
    }
    const std::size_t length = c == '[' ? bracket_length(pattern.substr(at)) : 0;
    if (length > 0) {
      from = add_bytes(from, bytes_of_bracket(pattern.substr(at, length)));
      at += length - 1;
      continue;
    }
    if (c == '\\' && at + 1 < pattern.size()) ++at;
    from = add_bytes(from, c == '?' ? all_but_slash() : only(pattern[at]));
  }
  return add_bytes(from, only('/'));
}

PathLanguages::State PathLanguages::add_any_components(State from) {
  const State loop = new_state();
  add_empty(from, loop);
  const State inside = add_bytes(loop, all_but_slash());
  edges_[inside].push_back({all_but_slash(), inside});
  edges_[inside].push_back({only('/'), loop});
  return loop;
}

PathLanguages::State PathLanguages::add_path(State from, std::string_view pattern) {
  while (!pattern.empty()) {
    const std::string_view part = take_component(pattern);
    from = part == kAnyDepth ? add_any_components(from) : add_name(from, part);
  }
  return from;
}

void PathLanguages::accept(State state, Id language, bool below) {
  const State end = new_state();
  add_empty(below ? add_any_components(state) : state, end);
  accepted_[end] = language;
}

void PathLanguages::add_pattern(Id language, std::string_view pattern, bool below) {
  accept(add_path(0, pattern), language, below);
}

void PathLanguages::add_names(Id language, std::string_view pattern, bool below) {
  accept(add_name(add_any_components(0), pattern), language, below);
}

void PathLanguages::add_names_in(Id language, std::string_view directory,
                                 std::string_view pattern) {
  accept(add_name(add_path(0, directory), pattern), language, false);
}

void PathLanguages::add_ending(Id language, std::string_view ending) {
  const State loop = new_state();
  add_empty(0, loop);
  Bytes any = all_but_slash();
  any.set('/');
  edges_[loop].push_back({any, loop});
  accept(add_bytes(add_text(loop, ending), only('/')), language, false);
}

// One byte of each set that no edge distinguishes; letters first, so that examples are readable.
std::vector<unsigned char> PathLanguages::representatives() const {
  std::vector<unsigned char> order;
  for (unsigned byte = 'a'; byte <= 'z'; ++byte) order.push_back(static_cast<unsigned char>(byte));
  for (unsigned byte = 1; byte < 256; ++byte) {
    if (byte < 'a' || byte > 'z') order.push_back(static_cast<unsigned char>(byte));
  }
  std::vector<Bytes> kinds;
  const auto by_value = [](const Bytes& a, const Bytes& b) {
    return a.to_string() < b.to_string();
  };
  for (const auto& edges : edges_) {
    for (const Edge& edge : edges) kinds.push_back(edge.bytes);
  }
  std::sort(kinds.begin(), kinds.end(), by_value);
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  std::map<std::vector<bool>, unsigned char> known;
  std::vector<unsigned char> chosen;
  for (const unsigned char byte : order) {
    std::vector<bool> signature;
    for (const Bytes& bytes : kinds) signature.push_back(bytes.test(byte));
    if (known.try_emplace(std::move(signature), byte).second) chosen.push_back(byte);
  }
  return chosen;
}

PathLanguages::Subset PathLanguages::close(Subset subset) const {
  std::vector<bool> seen(edges_.size());
  for (const State state : subset) seen[state] = true;
  for (std::size_t at = 0; at < subset.size(); ++at) {
    for (const State to : empty_edges_[subset[at]]) {
      if (!seen[to]) subset.push_back(to);
      seen[to] = true;
    }
  }
  std::sort(subset.begin(), subset.end());
  return subset;
}

PathLanguages::Subset PathLanguages::step(const Subset& from, unsigned char byte) const {
  Subset next;
  for (const State state : from) {
    for (const Edge& edge : edges_[state]) {
      if (edge.bytes.test(byte)) next.push_back(edge.to);
    }
  }
  std::sort(next.begin(), next.end());
  next.erase(std::unique(next.begin(), next.end()), next.end());
  return close(std::move(next));
}

PathLanguages::Accepts PathLanguages::accepts(const Subset& subset) const {
  Accepts accepts(language_count_);
  for (const State state : subset) {
    if (accepted_[state]) accepts[*accepted_[state]] = true;
  }
  return accepts;
}

PathLanguages::Found PathLanguages::find_path(
    const std::function<bool(const Accepts&)>& wanted) const {
  const std::vector<unsigned char> alphabet = representatives();
  std::map<Subset, std::string> known;  // and the text that leads there
  std::vector<decltype(known)::const_iterator> queue;
  queue.push_back(known.try_emplace(close({0})).first);
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const auto& [subset, text] = *queue[at];
    const Accepts held = accepts(subset);
    if (held.front() && wanted(held)) return {true, text.substr(0, text.size() - 1)};
    if (queue.size() > kMostSubsets) return {false, {}};
    for (const unsigned char byte : alphabet) {
      Subset next = step(subset, byte);
      // Without a state of language 0, which are the first, no path goes on there.
      if (next.empty() || next.front() > 2) continue;
      const auto [added, is_new] =
          known.try_emplace(std::move(next), text + static_cast<char>(byte));
      if (is_new) queue.push_back(added);
    }
  }
  return {true, {}};
}

}  // namespace cacheshim
