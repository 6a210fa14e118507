// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Decides what patterns can match: "Is there a path that A and B match, and C does not?" Only for
// `cacheshim profile check`.
//
// A pattern of names is a glob over bytes, and a pattern of paths is a glob over names. So there are two searches
// (glob_automaton.h). The first one finds the kinds of names: names are of one kind if the same patterns of names match
// them. The second one finds the path, with the kinds as its alphabet. A single search over the bytes of whole paths
// would visit the product of both: it took 16 s for the shipped profiles; the two searches take 0.6 s.
namespace cacheshim {

class PathLanguages {
 public:
  using Id = std::size_t;
  // Indexed by language: whether it contains the path.
  using Accepts = std::vector<bool>;

  // Adds an empty language, to which the functions below add paths.
  Id add() { return patterns_.emplace_back(), patterns_.size() - 1; }
  // Adds the paths that PathPattern(`pattern`) matches; with `below`, also all paths below them.
  void add_pattern(Id language, std::string_view pattern, bool below = false);
  // Adds the paths whose last component matches the name pattern; with `below`, also all paths
  // below them.
  void add_names(Id language, std::string_view pattern, bool below = false);
  // Adds the files whose names match `pattern` and that are directly in a directory that `directory` matches.
  void add_names_in(Id language, std::string_view directory, std::string_view pattern);
  // Adds the paths whose name ends with this text.
  void add_ending(Id language, std::string_view ending);

  // Returns a path for which `wanted` holds, with the fewest components possible; nothing if there is none, or if the
  // search exceeds its bounded number of steps (`is_decided` is then false).
  struct Found {
    bool is_decided;
    std::optional<std::string> path;
  };
  Found find_path(const std::function<bool(const Accepts&)>& wanted) const;

 private:
  // A set of patterns of names. The patterns that add_names() adds to one language form one set, so that there are
  // fewer kinds.
  using NameSet = std::size_t;
  struct Kind {
    std::vector<bool> matches;  // by set of names: whether the set matches
    std::string example;
  };
  using Pattern = std::vector<NameSet>;  // "**" is kAnyDepth

  NameSet names_of(std::string_view pattern);
  // Returns nothing if the search exceeds its bounded number of steps.
  std::optional<std::vector<Kind>> kinds() const;

  std::vector<std::vector<std::string>> names_;      // indexed by set
  std::vector<std::vector<Pattern>> patterns_;       // indexed by language
  std::map<std::pair<Id, bool>, NameSet> anywhere_;  // the sets that add_names() has made
};

}  // namespace cacheshim
