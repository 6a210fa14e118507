// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/glob_automaton.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cacheshim {
namespace {

constexpr std::size_t kMostSets = 20000;
constexpr std::size_t kBits = 64;

bool test(const std::vector<std::uint64_t>& states, std::size_t state) {
  return (states[state / kBits] >> (state % kBits) & 1) != 0;
}

void set(std::vector<std::uint64_t>& states, std::size_t state) {
  states[state / kBits] |= std::uint64_t{1} << (state % kBits);
}

}  // namespace

GlobAutomaton::GlobAutomaton(const std::vector<std::vector<Glob>>& sets, std::size_t symbol_count)
    : set_count_(sets.size()) {
  for (std::size_t i = 0; i < sets.size(); ++i) {
    for (const Glob& glob : sets[i]) add_chain(i, glob);
  }
  loops_.resize(state_count_ / kBits + 1);
  for (Chain& chain : chains_) {
    for (auto& [star, replaced] : chain.stars) {
      set(loops_, star);
      replaced.resize(loops_.size());
      for (std::size_t state = chain.first; state < star; ++state) set(replaced, state);
      for (const Chain& other : chains_) {
        if (star != chain.last || other.set != chain.set || &other == &chain) continue;
        for (std::size_t state = other.first; state <= other.last; ++state) set(replaced, state);
      }
    }
  }
  std::map<States, Symbol> known;
  for (Symbol symbol = 0; symbol < symbol_count; ++symbol) {
    States states = readable(sets, symbol);
    if (known.try_emplace(states, symbol).second) moves_.push_back({symbol, std::move(states)});
  }
}

void GlobAutomaton::add_chain(std::size_t set, const Glob& glob) {
  Chain chain{set, state_count_, state_count_, {}};
  for (const auto& token : glob) {
    if (token) {
      ++chain.last;
    } else if (chain.stars.empty() || chain.stars.front().first != chain.last) {
      chain.stars.insert(chain.stars.begin(), {chain.last, States()});
    }
  }
  state_count_ = chain.last + 1;
  chains_.push_back(std::move(chain));
}

// Returns the states that `symbol` can enter, each from the previous state of its chain.
GlobAutomaton::States GlobAutomaton::readable(const std::vector<std::vector<Glob>>& sets,
                                              Symbol symbol) const {
  States states(loops_.size());
  std::size_t state = 0;
  for (const auto& globs : sets) {
    for (const Glob& glob : globs) {
      for (const auto& token : glob) {
        if (!token) continue;
        ++state;
        if ((*token)[symbol]) set(states, state);
      }
      ++state;  // the first state of the next chain
    }
  }
  return states;
}

GlobAutomaton::States GlobAutomaton::initial() const {
  States states(loops_.size());
  for (const Chain& chain : chains_) set(states, chain.first);
  return states;
}

void GlobAutomaton::drop_replaced(States& states) const {
  for (const Chain& chain : chains_) {
    for (const auto& [star, replaced] : chain.stars) {
      if (!test(states, star)) continue;
      for (std::size_t i = 0; i < states.size(); ++i) states[i] &= ~replaced[i];
      break;
    }
  }
}

// No symbol leads to the first state of a chain, so a shift never crosses from one chain to the next.
GlobAutomaton::States GlobAutomaton::step(const States& from, const States& readable) const {
  States next(from.size());
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    next[i] = ((from[i] << 1 | carry) & readable[i]) | (from[i] & loops_[i]);
    carry = from[i] >> (kBits - 1);
  }
  drop_replaced(next);
  return next;
}

std::vector<bool> GlobAutomaton::matches(const States& states) const {
  std::vector<bool> matches(set_count_);
  for (const Chain& chain : chains_) {
    if (test(states, chain.last)) matches[chain.set] = true;
  }
  return matches;
}

bool GlobAutomaton::explore(const Visit& visit) const {
  std::map<States, Word> known;
  std::vector<decltype(known)::const_iterator> queue;
  const auto follow = [&](const States& from, const Word& word) {
    for (const Move& move : moves_) {
      const auto [added, is_new] = known.try_emplace(step(from, move.readable), word);
      if (!is_new) continue;
      added->second.push_back(move.symbol);
      queue.push_back(added);
    }
  };
  follow(initial(), {});
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const auto& [states, word] = *queue[at];
    if (visit(matches(states), word)) return true;
    if (queue.size() > kMostSets) return false;
    follow(states, word);
  }
  return true;
}

}  // namespace cacheshim
