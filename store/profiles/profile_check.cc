// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/profile_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "store/profiles/path_languages.h"
#include "store/sys/paths.h"
#include "store/sys/toml_reader.h"

// Most checks search for a path to which a part of the profile applies (path_languages.h). If there is none, the check
// reports that part. If a search exceeds its bounds, the check reports nothing.
namespace cacheshim {
namespace {

// Collects findings, each with the line of the parsed file to which it applies.
class Findings {
 public:
  Findings(const toml::table& table, std::string_view origin) : table_(table), origin_(origin) {}

  // Returns the line of the value of `key` in `table`, or of the value's element `index`.
  static std::uint32_t line_of(const toml::table& table, std::string_view key,
                               std::size_t index = 0) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return table.source().begin.line;
    const toml::array* array = node->as_array();
    if (array != nullptr && index < array->size()) node = array->get(index);
    return node->source().begin.line;
  }
  const toml::table& root() const { return table_; }
  const toml::table& entry(std::size_t rule) const {
    return *table_.get("entry")->as_array()->get(rule)->as_table();
  }
  const toml::table& classes() const { return *table_.get("class")->as_table(); }

  void add(std::uint32_t line, std::string_view text) {
    lines_.emplace_back(line, fmt::format("{}:{}: {}", origin_, line, text));
  }
  std::vector<std::string> take() {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> texts;
    for (auto& [line, text] : lines_) texts.push_back(std::move(text));
    return texts;
  }

 private:
  const toml::table& table_;
  std::string origin_;
  std::vector<std::pair<std::uint32_t, std::string>> lines_;
};

void add_class_pattern(PathLanguages& languages, PathLanguages::Id id, const std::string& pattern,
                       bool below) {
  if (pattern.find('/') == pattern.npos) {
    languages.add_names(id, pattern, below);
  } else {
    languages.add_pattern(id, pattern, below);
  }
}

// One question about paths, with the profile's classes and entry rules as languages. Use a new object for each
// question.
class Question {
 public:
  using Accepts = PathLanguages::Accepts;

  explicit Question(const Profile& profile) : profile_(profile) {}

  PathLanguages& languages() { return languages_; }
  // Adds a language: the paths that the patterns of this class match, including those that an earlier class also
  // matches.
  PathLanguages::Id add_class(NameClass wanted) {
    const PathLanguages::Id id = languages_.add();
    for (const auto& [name_class, pattern] : profile_.classes) {
      if (name_class != wanted) continue;
      add_class_pattern(languages_, id, pattern.text(), row_of(name_class).covers_below);
    }
    return id;
  }
  // Adds a language: the paths that the rule matches and, if its entries are directories, everything below. Earlier
  // rules may match them as well.
  PathLanguages::Id add_paths(const EntryRule& rule) {
    const PathLanguages::Id id = languages_.add();
    languages_.add_pattern(id, rule.path.text(), rule.is_directory());
    return id;
  }
  // Adds a language: the paths that end with one of the rule's endings; all paths if the rule has no endings.
  PathLanguages::Id add_endings(const EntryRule& rule) {
    const PathLanguages::Id id = languages_.add();
    if (rule.is_directory()) languages_.add_pattern(id, "**");
    for (const std::string& ending : rule.files) languages_.add_ending(id, ending);
    return id;
  }
  // Returns a predicate: whether `rule` is the first rule that matches a path.
  std::function<bool(const Accepts&)> is_first(std::size_t rule) {
    std::vector<std::pair<PathLanguages::Id, PathLanguages::Id>> rules;
    for (std::size_t i = 0; i <= rule; ++i) {
      const PathLanguages::Id paths = add_paths(profile_.entries[i]);
      rules.emplace_back(paths, add_endings(profile_.entries[i]));
    }
    return [rules](const Accepts& accepts) {
      const auto matches = [&](const auto& one) {
        return accepts[one.first] && accepts[one.second];
      };
      return matches(rules.back()) && std::none_of(rules.begin(), rules.end() - 1, matches);
    };
  }
  bool is_possible(const std::function<bool(const Accepts&)>& wanted) const {
    const auto found = languages_.find_path(wanted);
    return !found.is_decided || found.path;
  }
  std::optional<std::string> example(const std::function<bool(const Accepts&)>& wanted) const {
    return languages_.find_path(wanted).path;
  }

 private:
  const Profile& profile_;
  PathLanguages languages_;
};

class ProfileCheck {
 public:
  ProfileCheck(const Profile& profile, Findings& findings)
      : profile_(profile), findings_(findings) {}

  void run() {
    check_variables();
    for (std::size_t rule = 0; rule < profile_.entries.size(); ++rule) {
      if (check_rule(rule)) check_names_of(rule);
    }
    std::size_t index = 0;
    for (std::size_t i = 0; i < profile_.classes.size(); ++i) {
      const bool is_next = i > 0 && profile_.classes[i].first == profile_.classes[i - 1].first;
      index = is_next ? index + 1 : 0;
      check_class(i, index);
    }
  }

 private:
  void check_variables() {
    for (std::size_t i = 0; i < profile_.unless.size(); ++i) {
      if (profile_.unless[i] != profile_.variable) continue;
      findings_.add(
          Findings::line_of(findings_.root(), "unless", i),
          fmt::format("unless: '{}' is the profile's own variable: if it is set, the "
                      "library redirects nothing to the mount",
                      profile_.variable));
    }
    for (std::size_t i = 0; i < profile_.default_paths.size(); ++i) {
      const std::string path = profile_.default_paths[i] + "/";
      if (path.find("/../") == path.npos && path.find("/./") == path.npos) continue;
      findings_.add(Findings::line_of(findings_.root(), "default_paths", i),
                    fmt::format("default_paths: '{}' has a component '.' or '..': no path that a "
                                "program uses matches it",
                                profile_.default_paths[i]));
    }
  }

  // If the rule applies to no path, or only to paths that are never published, reports the rule and
  // returns false. Otherwise checks the rule's other parts, except patterns of names, and returns true.
  bool check_rule(std::size_t rule) {
    const toml::table& table = findings_.entry(rule);
    const EntryRule& entry = profile_.entries[rule];
    Question question(profile_);
    const auto is_first = question.is_first(rule);
    const PathLanguages::Id scratch = question.add_class(NameClass::kScratch);
    const auto line = Findings::line_of(table, "path");
    if (!question.is_possible(is_first)) {
      findings_.add(line, fmt::format("entry.path: '{}' never applies: {}", entry.path.text(),
                                      why_never(entry)));
      return false;
    }
    if (!question.is_possible(
            [&](const auto& accepts) { return is_first(accepts) && !accepts[scratch]; })) {
      findings_.add(line, fmt::format("entry.path: nothing of '{}' is ever published: all of its "
                                      "names are of class scratch",
                                      entry.path.text()));
      return false;
    }
    check_endings(rule);
    check_lock(rule);
    check_inner_entries(rule);
    return true;
  }

  std::string why_never(const EntryRule& entry) const {
    Question question(profile_);
    const PathLanguages::Id paths = question.add_paths(entry);
    const PathLanguages::Id endings = question.add_endings(entry);
    const bool matches_any = question.is_possible(
        [&](const auto& accepts) { return accepts[paths] && accepts[endings]; });
    return matches_any ? "earlier rules match all of its paths"
                       : "none of its paths has an ending of 'files'";
  }

  // Reports entries of earlier rules that are in a directory of this rule: the directory is published and evicted as a
  // whole, whether or not those entries are complete.
  void check_inner_entries(std::size_t rule) {
    if (!profile_.entries[rule].is_directory()) return;
    for (std::size_t inner = 0; inner < rule; ++inner) {
      const auto example = entry_within(inner, rule);
      if (!example) continue;
      findings_.add(
          Findings::line_of(findings_.entry(rule), "path"),
          fmt::format(
              "entry.path: '{}' matches directories that contain entries of line {}, such as '{}': such "
              "a directory is published and evicted as a whole, with these entries",
              profile_.entries[rule].path.text(), Findings::line_of(findings_.entry(inner), "path"),
              *example));
    }
  }

  // Returns an entry of the rule `inner` that is in a directory of the later rule `outer`. A "**" also matches
  // directories that the program never creates. So if one of the two patterns has a "**", returns an entry only if
  // every entry of `inner` is in a directory of `outer`. Ignores entries below a scratch name, and entries in a
  // directory of a rule between the two: that rule has its own finding.
  std::optional<std::string> entry_within(std::size_t inner, std::size_t outer) const {
    const std::string& directories = profile_.entries[outer].path.text();
    const std::string& entries = profile_.entries[inner].path.text();
    Question question(profile_);
    PathLanguages& languages = question.languages();
    const auto is_first = question.is_first(inner);
    const PathLanguages::Id own = languages.add();
    languages.add_pattern(own, entries);
    const PathLanguages::Id within = languages.add();
    languages.add_pattern(within, directories + "/*", true);
    const PathLanguages::Id apart = question.add_class(NameClass::kScratch);
    for (std::size_t i = inner + 1; i < outer; ++i) {
      const EntryRule& between = profile_.entries[i];
      if (between.is_directory()) languages.add_pattern(apart, between.path.text(), true);
    }
    const auto is_entry = [&](const auto& accepts) { return is_first(accepts) && accepts[own]; };
    const bool is_vague = (entries + directories).find("**") != entries.npos;
    if (is_vague && question.is_possible([&](const auto& accepts) {
          return is_entry(accepts) && !accepts[within];
        })) {
      return std::nullopt;
    }
    return question.example([&](const auto& accepts) {
      return is_entry(accepts) && accepts[within] && !accepts[apart];
    });
  }

  // Reports an ending that is never used, because an earlier ending matches the same names.
  void check_endings(std::size_t rule) {
    const std::vector<std::string>& files = profile_.entries[rule].files;
    for (std::size_t i = 0; i < files.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!files[i].ends_with(files[j])) continue;
        findings_.add(Findings::line_of(findings_.entry(rule), "files", i),
                      fmt::format("entry.files: '{}' is never used: '{}' comes before it and matches "
                                  "the same names",
                                  files[i], files[j]));
        break;
      }
    }
  }

  // Returns the pattern of the build locks' paths, relative to the cache's directory.
  static std::string place_of_lock(const EntryRule& entry) {
    constexpr std::string_view kBeside = "./";
    if (!entry.built_under.starts_with(kBeside)) return entry.built_under;
    return join_path(parent_path(entry.path.text()), entry.built_under.substr(kBeside.size()));
  }

  void check_lock(std::size_t rule) {
    const std::string& lock_file = profile_.entries[rule].built_under;
    if (lock_file.empty()) return;
    Question question(profile_);
    const PathLanguages::Id scratch = question.add_class(NameClass::kScratch);
    const PathLanguages::Id locks = question.add_class(NameClass::kLock);
    const PathLanguages::Id own = question.languages().add();
    question.languages().add_pattern(own, place_of_lock(profile_.entries[rule]));
    const PathLanguages::Id batons = question.add_class(NameClass::kBaton);
    const auto is_lock = [&](const auto& accepts) {
      return accepts[own] && (accepts[locks] || accepts[batons]) && !accepts[scratch];
    };
    if (question.is_possible(is_lock)) return;
    findings_.add(Findings::line_of(findings_.entry(rule), "built_under"),
                  fmt::format("entry.built_under: '{}' is not of class lock or baton: the daemon "
                              "does not see its unlock, so the entry is never complete",
                              lock_file));
  }

  void check_names_of(std::size_t rule) {
    const EntryRule& entry = profile_.entries[rule];
    check_names(rule, "complete", entry.complete);
    check_names(rule, "complete_single", entry.complete_single);
    check_names(rule, "complete_at_end", entry.complete_at_end);
    check_names(rule, "paths_in", entry.paths_in);
  }

  // Reports each pattern that can match no file of the entry. In a directory entry, the file must be directly in the
  // directory (for `paths_in`: at any depth), and scratch names, locks and batons do not count. In an entry of files,
  // they count, because a scratch name may show that the entry is complete.
  void check_names(std::size_t rule, std::string_view key,
                   const std::vector<std::string>& patterns) {
    const EntryRule& entry = profile_.entries[rule];
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      Question question(profile_);
      const auto is_first = question.is_first(rule);
      const PathLanguages::Id own = question.languages().add();
      if (entry.is_directory() && key != "paths_in") {
        question.languages().add_names_in(own, entry.path.text(), patterns[i]);
      } else {
        question.languages().add_names(own, patterns[i]);
      }
      const PathLanguages::Id scratch = question.add_class(NameClass::kScratch);
      const PathLanguages::Id locks = question.add_class(NameClass::kLock);
      const PathLanguages::Id batons = question.add_class(NameClass::kBaton);
      const auto is_there = [&](const auto& accepts) { return is_first(accepts) && accepts[own]; };
      const auto counts = [&](const auto& accepts) {
        const bool is_beside = accepts[scratch] || accepts[locks] || accepts[batons];
        return is_there(accepts) && (!entry.is_directory() || !is_beside);
      };
      if (question.is_possible(counts)) continue;
      const auto line = Findings::line_of(findings_.entry(rule), key, i);
      const auto example = question.example(is_there);
      findings_.add(line, fmt::format("entry.{}: '{}' {}", key, patterns[i],
                                      example ? fmt::format("counts for nothing: its names are of "
                                                            "class {}",
                                                            to_string(profile_.class_of(*example)))
                                              : "matches no file of this entry"));
    }
  }

  void check_class(std::size_t at, std::size_t index) {
    const NameClass name_class = profile_.classes[at].first;
    const PathPattern& pattern = profile_.classes[at].second;
    const std::string_view key = to_string(name_class);
    const auto report = [&](std::string_view reason) {
      findings_.add(Findings::line_of(findings_.classes(), key, index),
                    fmt::format("class.{}: '{}' {}", key, pattern.text(), reason));
    };
    if (row_of(name_class).needs_evidence && !profile_.may_publish_early()) {
      return report("has no effect: the profile's evidence is guess");
    }
    if (const auto other = shadowing_class(name_class, pattern.text())) {
      return report(fmt::format("has no effect: its names are of class {}", to_string(*other)));
    }
    if (row_of(name_class).is_awaited) check_flight(pattern.text(), report);
  }

  // If the earlier classes together match all paths that `pattern` matches, returns one of these classes: none of the
  // paths is then of class `name_class`.
  std::optional<NameClass> shadowing_class(NameClass name_class, const std::string& pattern) const {
    Question question(profile_);
    std::vector<PathLanguages::Id> before;
    for (const NameClassRow& earlier : kNameClasses) {
      if (earlier.name_class == name_class) break;
      before.push_back(question.add_class(earlier.name_class));
    }
    const PathLanguages::Id own = question.languages().add();
    add_class_pattern(question.languages(), own, pattern, row_of(name_class).covers_below);
    const bool can_be = question.is_possible([&](const auto& accepts) {
      return accepts[own] &&
             std::none_of(before.begin(), before.end(), [&](auto id) { return accepts[id]; });
    });
    if (can_be) return std::nullopt;
    const auto example = question.example([&](const auto& accepts) { return accepts[own]; });
    if (!example) return std::nullopt;
    return profile_.class_of(*example);
  }

  // Reports a `flight` pattern that can never make a process wait. A process waits for a file in a directory entry, or
  // for the entry's directory, until the entry is complete. So the pattern must match one of these two, and the entry's
  // rule must say when the entry is complete.
  template <typename Report>
  void check_flight(const std::string& pattern, const Report& report) const {
    std::optional<std::size_t> untold;
    for (std::size_t rule = 0; rule < profile_.entries.size(); ++rule) {
      const EntryRule& entry = profile_.entries[rule];
      if (!entry.is_directory()) continue;
      Question question(profile_);
      const auto is_first = question.is_first(rule);
      const PathLanguages::Id own = question.languages().add();
      add_class_pattern(question.languages(), own, pattern, false);
      const PathLanguages::Id scratch = question.add_class(NameClass::kScratch);
      const PathLanguages::Id names = question.languages().add();
      question.languages().add_pattern(names, entry.path.text(), true);
      const bool can_be = question.is_possible([&](const auto& accepts) {
        return accepts[own] && accepts[names] && !accepts[scratch] && is_first(accepts);
      });
      if (can_be && entry.is_end_seen()) return;
      if (can_be) untold = rule;
    }
    if (!untold) {
      return report(
          "is never waited for: no entry is a directory of such a name, or has such a file");
    }
    report(
        fmt::format("cannot make other jobs wait until its entry is complete: nothing in the entry rule "
                    "of line {} says when that is",
                    Findings::line_of(findings_.entry(*untold), "path")));
  }

  const Profile& profile_;
  Findings& findings_;
};

// Parses the file again, because findings contain line numbers. If the file has changed since the profile was loaded
// and is no longer valid TOML, returns one line with the error.
std::vector<std::string> find_in(const std::string& path,
                                 const std::function<void(Findings&)>& find) {
  try {
    const toml::table table = toml::parse_file(path);
    Findings findings(table, path);
    find(findings);
    return findings.take();
  } catch (const toml::parse_error& error) {
    return {fmt::format("{}:{}: {}", path, error.source().begin.line, error.description())};
  }
}

void check_pair(const Profile& profile, const Profile& other, Findings& findings) {
  const std::string whose = fmt::format("the profile '{}' ({})", other.name, other.origin);
  const auto report = [&](std::string_view key, std::size_t index, std::string_view what) {
    findings.add(Findings::line_of(findings.root(), key, index),
                 fmt::format("{}: {} {} too: one of the two is not used", key, what, whose));
  };
  if (other.name == profile.name) {
    report("name", 0, fmt::format("'{}' is the directory of", profile.name));
  }
  if (!profile.variable.empty() && other.variable == profile.variable) {
    report("variable", 0, fmt::format("'{}' is the variable of", profile.variable));
  }
  const auto& theirs = other.default_paths;
  for (std::size_t i = 0; i < profile.default_paths.size(); ++i) {
    const std::string& path = profile.default_paths[i];
    if (std::find(theirs.begin(), theirs.end(), path) == theirs.end()) continue;
    report("default_paths", i, fmt::format("'{}' is a default path of", path));
  }
}

}  // namespace

std::vector<std::string> check_profile(const std::string& path) {
  const auto loaded = load_profile(path);
  if (const auto* error = std::get_if<ProfileError>(&loaded)) return {error->message};
  return find_in(
      path, [&](Findings& findings) { ProfileCheck(std::get<Profile>(loaded), findings).run(); });
}

std::vector<std::string> check_against(const Profile& profile, const std::vector<Profile>& others) {
  return find_in(profile.origin, [&](Findings& findings) {
    for (const Profile& other : others) check_pair(profile, other, findings);
  });
}

}  // namespace cacheshim
