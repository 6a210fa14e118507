// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/path_languages.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "store/profiles/glob_automaton.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

constexpr std::string_view kAnyDepthText = "**";
constexpr std::size_t kAnyDepth = static_cast<std::size_t>(-1);  // stands for "**" in a Pattern

// The bytes that names may have; letters first, so that examples are readable.
std::vector<unsigned char> name_bytes() {
  std::vector<unsigned char> bytes(26);
  std::iota(bytes.begin(), bytes.end(), 'a');
  for (unsigned byte = 1; byte < 256; ++byte) {
    if ((byte < 'a' || byte > 'z') && byte != '/')
      bytes.push_back(static_cast<unsigned char>(byte));
  }
  return bytes;
}

template <typename Holds>
GlobAutomaton::Symbols symbols_of(const std::vector<unsigned char>& bytes, const Holds& holds) {
  GlobAutomaton::Symbols symbols;
  for (const unsigned char byte : bytes) symbols.push_back(holds(byte));
  return symbols;
}

// Returns the length of the bracket expression that `pattern` begins with; 0 if its '[' is an
// ordinary character.
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

GlobAutomaton::Glob glob_of_name(std::string_view pattern,
                                 const std::vector<unsigned char>& bytes) {
  GlobAutomaton::Glob glob;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '*') {
      glob.emplace_back();
      continue;
    }
    const std::size_t length = c == '[' ? bracket_length(pattern.substr(at)) : 0;
    if (length > 0) {  // fnmatch(3) itself decides which bytes the brackets match
      const std::string bracket(pattern.substr(at, length));
      glob.push_back(symbols_of(bytes, [&](unsigned char byte) {
        const char name[] = {static_cast<char>(byte), '\0'};
        return ::fnmatch(bracket.c_str(), name, 0) == 0;
      }));
      at += length - 1;
      continue;
    }
    if (c == '\\' && at + 1 < pattern.size()) ++at;
    glob.push_back(symbols_of(bytes, [&](unsigned char byte) {
      return c == '?' || byte == static_cast<unsigned char>(pattern[at]);
    }));
  }
  return glob;
}

}  // namespace

PathLanguages::NameSet PathLanguages::names_of(std::string_view pattern) {
  if (pattern == kAnyDepthText) return kAnyDepth;
  const std::vector<std::string> names{std::string(pattern)};
  const auto known = std::find(names_.begin(), names_.end(), names);
  if (known != names_.end()) return static_cast<NameSet>(known - names_.begin());
  names_.push_back(names);
  return names_.size() - 1;
}

void PathLanguages::add_pattern(Id language, std::string_view pattern, bool below) {
  Pattern added;
  while (!pattern.empty()) added.push_back(names_of(take_component(pattern)));
  if (below) added.push_back(kAnyDepth);
  patterns_[language].push_back(std::move(added));
}

void PathLanguages::add_names(Id language, std::string_view pattern, bool below) {
  const auto [at, is_new] = anywhere_.try_emplace({language, below}, names_.size());
  if (is_new) {
    names_.emplace_back();
    patterns_[language].push_back({kAnyDepth, at->second});
    if (below) patterns_[language].back().push_back(kAnyDepth);
  }
  names_[at->second].emplace_back(pattern);
}

void PathLanguages::add_names_in(Id language, std::string_view directory,
                                 std::string_view pattern) {
  add_pattern(language, directory);
  patterns_[language].back().push_back(names_of(pattern));
}

void PathLanguages::add_ending(Id language, std::string_view ending) {
  std::string pattern = "*";
  for (const char c : ending) (pattern += '\\') += c;
  add_names(language, pattern);
}

std::optional<std::vector<PathLanguages::Kind>> PathLanguages::kinds() const {
  const std::vector<unsigned char> bytes = name_bytes();
  std::vector<std::vector<GlobAutomaton::Glob>> sets;
  for (const auto& names : names_) {
    auto& globs = sets.emplace_back();
    for (const std::string& name : names) globs.push_back(glob_of_name(name, bytes));
  }
  std::set<std::vector<bool>> known;
  std::vector<Kind> kinds;
  const bool is_whole =
      GlobAutomaton(sets, bytes.size()).explore([&](const auto& matches, const auto& word) {
        if (!known.insert(matches).second) return false;
        Kind& kind = kinds.emplace_back(Kind{matches, {}});
        for (const auto symbol : word) kind.example += static_cast<char>(bytes[symbol]);
        return false;
      });
  if (!is_whole) return std::nullopt;
  return kinds;
}

PathLanguages::Found PathLanguages::find_path(
    const std::function<bool(const Accepts&)>& wanted) const {
  const auto kinds = this->kinds();
  if (!kinds) return {false, {}};
  std::vector<std::vector<GlobAutomaton::Glob>> sets;
  for (const auto& patterns : patterns_) {
    auto& globs = sets.emplace_back();
    for (const Pattern& pattern : patterns) {
      auto& glob = globs.emplace_back();
      for (const NameSet names : pattern) {
        auto& token = glob.emplace_back();
        if (names == kAnyDepth) continue;
        token.emplace();
        for (const Kind& kind : *kinds) token->push_back(kind.matches[names]);
      }
    }
  }
  std::optional<std::string> path;
  const bool is_whole =
      GlobAutomaton(sets, kinds->size()).explore([&](const auto& accepts, const auto& word) {
        if (!wanted(accepts)) return false;
        std::string text;
        for (const auto kind : word) text += '/' + (*kinds)[kind].example;
        path = text.substr(1);
        return true;
      });
  return {is_whole, std::move(path)};
}

}  // namespace cacheshim
