// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Decides what patterns can match: "is there a path that A and B match, and C does not?". Only for
// `cacheshim profile check`, because a search may be slow.
//
// All languages are one nondeterministic automaton over bytes. find_path() walks its subsets breadth
// first, so that it finds a shortest path. A path is read with a '/' behind each of its components.
namespace cacheshim {

class PathLanguages {
 public:
  using Id = std::size_t;
  // Which languages hold the path, by their ids.
  using Accepts = std::vector<bool>;

  PathLanguages();

  // A language without a path, to be added to.
  Id add();
  // Paths that PathPattern(`pattern`) matches; with `below`, also all paths below them.
  void add_pattern(Id language, std::string_view pattern, bool below = false);
  // Paths whose last component matches the name pattern; with `below`, also all paths below them.
  void add_names(Id language, std::string_view pattern, bool below = false);
  // Files whose name matches `pattern`, directly in a directory that `directory` matches.
  void add_names_in(Id language, std::string_view directory, std::string_view pattern);
  // Paths that end with this text.
  void add_ending(Id language, std::string_view ending);

  // A shortest path for which `wanted` holds; nothing if there is none, or if the search exceeds its
  // bounded number of steps.
  struct Found {
    bool is_decided;
    std::optional<std::string> path;
  };
  Found find_path(const std::function<bool(const Accepts&)>& wanted) const;

 private:
  using Bytes = std::bitset<256>;
  using State = std::size_t;
  struct Edge {
    Bytes bytes;
    State to;
  };
  using Subset = std::vector<State>;  // sorted

  State new_state();
  void add_empty(State from, State to) { empty_edges_[from].push_back(to); }
  State add_bytes(State from, const Bytes& bytes);
  State add_text(State from, std::string_view text);
  State add_name(State from, std::string_view pattern);
  State add_path(State from, std::string_view pattern);
  State add_any_components(State from);
  void accept(State state, Id language, bool below);
  std::vector<unsigned char> representatives() const;
  Subset close(Subset subset) const;
  Subset step(const Subset& from, unsigned char byte) const;
  Accepts accepts(const Subset& subset) const;

  std::vector<std::vector<Edge>> edges_;
  std::vector<std::vector<State>> empty_edges_;
  std::vector<std::optional<Id>> accepted_;
  std::size_t language_count_ = 0;
};

}  // namespace cacheshim
