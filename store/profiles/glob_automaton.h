// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

// Takes several sets of globs, and finds all combinations of these sets that one word can match. The symbols of a word
// come from a small alphabet: the bytes of a name, or the kinds of names in a path.
//
// Each glob becomes a chain of states. State k of the chain means that the symbols read so far match the glob's first k
// elements, not counting stars. A star is a loop on a state. A set of states is stored as bits. Two rules keep the
// number of sets of states small:
// 1. A state with a loop replaces the states before it in its chain, because it accepts all that they accept.
// 2. The last state of a glob that ends with a star replaces the states of the other globs of its set, because the set
//    then always matches.
// A star before many '?' still doubles the number of sets with each '?', so the search is bounded.
namespace cacheshim {

class GlobAutomaton {
 public:
  using Symbol = std::size_t;
  // Indexed by symbol: whether the symbol is in the set.
  using Symbols = std::vector<bool>;
  // Each element: the set of symbols that match; nothing for a star.
  using Glob = std::vector<std::optional<Symbols>>;
  using Word = std::vector<Symbol>;

  // Symbols are below `symbol_count`. explore() prefers words with lower symbols.
  GlobAutomaton(const std::vector<std::vector<Glob>>& sets, std::size_t symbol_count);

  // Calls `visit` once for each set of states that a nonempty word can reach. `word` is a shortest such word. `matches`
  // is indexed by set of globs: whether one of its globs matches that word. Stops when `visit` returns true. Returns
  // false if the search exceeded its bound before it had visited all sets of states.
  using Visit = std::function<bool(const std::vector<bool>& matches, const Word& word)>;
  bool explore(const Visit& visit) const;

 private:
  using States = std::vector<std::uint64_t>;  // one bit per state

  States initial() const;
  States step(const States& from, const States& readable) const;
  void drop_replaced(States& states) const;
  void add_chain(std::size_t set, const Glob& glob);
  States readable(const std::vector<std::vector<Glob>>& sets, Symbol symbol) const;
  std::vector<bool> matches(const States& states) const;

  struct Chain {
    std::size_t set;
    std::size_t first;  // the number of its first state
    std::size_t last;
    // Each state with a loop, last state first, and the states that it replaces.
    std::vector<std::pair<std::size_t, States>> stars;
  };
  const std::size_t set_count_;
  std::size_t state_count_ = 0;
  std::vector<Chain> chains_;
  States loops_;
  struct Move {
    Symbol symbol;    // the first of the symbols with the same effect
    States readable;  // the states that the symbol can enter, each from the previous state
  };
  std::vector<Move> moves_;
};

}  // namespace cacheshim
