// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "store/profiles/name_class.h"
#include "store/profiles/path_pattern.h"

// The description of one cache family, read from one TOML file (docs/profiles.md). No C++ code depends on a
// particular family.
namespace cacheshim {

// The evidence for a profile, weakest first.
enum class Evidence {
  kGuess,  // allows no early publishing, no single flight and no shared names
  kDoc,    // based on the program's documentation
  kRead,   // based on the program's source
  kRun,    // based on the program's source, and verified on a mount
};
std::string_view to_string(Evidence evidence);

// The files that form an entry, and the signs that an entry is complete. An entry is published and evicted as a whole.
struct EntryRule {
  PathPattern path;  // matches the entry's directory, or each of its files; relative to the cache's directory
  // Empty: an entry is a directory. Otherwise an entry consists of the files whose names differ
  // only in these endings.
  std::vector<std::string> files = {};
  // Patterns of names. An entry is complete if it has a file that matches `complete`, or if its only file matches
  // `complete_single`. A directory entry must also have no baton, except its own build lock. The daemon checks this
  // when a matching file gets its name or is closed, when a directory gets its name by a rename, and when a baton is
  // removed.
  std::vector<std::string> complete = {};
  std::vector<std::string> complete_single = {};
  // Patterns of names. As `complete`, but checked only when all of the job's entries are to be published: at the job's
  // end, or on `cacheshim job publish`.
  std::vector<std::string> complete_at_end = {};
  // Whether the program renames complete files into place. Closing a file then does not complete the entry. Without
  // patterns in `complete` and `complete_single`, the entry is complete when its directory, or each of its files, has
  // its final name.
  bool renamed = false;
  // Patterns of names of JSON files that contain paths (recorded_paths.h).
  std::vector<std::string> paths_in = {};
  // The path of the lock file that a builder of the entry holds. It is relative to the cache's directory or, if it
  // begins with "./", to the directory that contains the entry. Its one '*' stands for the entry's name or, for an
  // entry of files, for the part of that name before a '.'. The entry is complete when the lock is unlocked or, for a
  // baton, when the file is removed. It is not complete if the holder dies or closes the file without an unlock.
  std::string built_under = {};
  // Whether a thread builds one entry at a time: after it finds that a name of class `flight` is absent, it completes
  // the name's entry before it begins another one. A thread that begins another entry first has abandoned the
  // incomplete one.
  bool one_by_one = false;
  // Whether programs replace the entry's files in normal use (an index, a manifest, an HTTP response that expires). A
  // job that reads such an entry and replaces it does not count as having rejected it.
  bool renewed = false;

  bool is_directory() const { return files.empty(); }
  // Whether an entry's names show when the entry is complete.
  bool says_when_complete() const { return built_under.empty() && (renamed || !needs_no_name()); }
  // Whether the daemon can detect before the job ends that the entry is complete, by its names or
  // by its lock.
  bool is_end_seen() const { return says_when_complete() || !built_under.empty(); }
  bool needs_no_name() const { return complete.empty() && complete_single.empty(); }
  bool completes(std::string_view file_name) const;
  bool completes_alone(std::string_view file_name) const;
  bool completes_at_end(std::string_view file_name) const;
  bool holds_paths(std::string_view file_name) const;
  // Whether `entry` is built under this lock file. Both paths are relative to the cache's directory.
  bool is_built_under(std::string_view lock_file, std::string_view entry) const;
  // Returns the directory of the entry that is built under this lock file; "" if the lock's path does not determine
  // the entry. Both paths are relative to the cache's directory.
  std::string entry_built_under(std::string_view lock_file) const;
};

struct Profile {
  std::string name;                        // the directory's name in the store and in the mount
  std::string variable;                    // environment variable that moves the cache, or empty
  // Whether the preloaded library sets `variable` if it is unset. False if setting the variable would turn the cache
  // on, or if programs would no longer find the cache.
  bool set_variable = true;
  std::vector<std::string> unless;         // if one of these variables is set, the cache is not redirected
  std::vector<std::string> default_paths;  // such as "~/.triton/cache"
  std::vector<EntryRule> entries;          // the first rule that matches applies
  // The first pattern that matches applies; the classes are in the order of kNameClasses.
  std::vector<std::pair<NameClass, PathPattern>> classes;
  // Whether the program creates its files by mkstemp(3), which always gives mode 0600. If so, the publisher makes the
  // files readable for all users, provided that the directory that contains the entry is open to all users (o+rx).
  bool mkstemp = false;
  Evidence evidence = Evidence::kGuess;
  std::string origin;  // the file from which the profile was read, or empty

  // Returns the class of `path`, which is relative to the cache's directory. A pattern without '/' matches the last
  // component at any depth.
  NameClass class_of(std::string_view path) const;
  // As class_of(path) == wanted, but faster: for most paths, tries only the patterns of class `wanted`. Requires:
  // `wanted` is neither kPrivate nor a class with covers_below (kScratch).
  bool is_of(std::string_view path, NameClass wanted) const;
  bool has(NameClass wanted) const;
  bool may_publish_early() const { return evidence != Evidence::kGuess; }
  bool sets_variable() const {
    return set_variable && !variable.empty() && evidence != Evidence::kGuess;
  }
};

// Where and why a profile was refused: "FILE:LINE: reason".
struct ProfileError {
  std::string message;
};

// Parses the text of one profile. `origin` is the file name used in messages.
// Unknown keys, a missing name, values of a wrong type and unknown evidence are errors.
std::variant<Profile, ProfileError> parse_profile(std::string_view text, std::string_view origin);

struct ProfileSet {
  std::vector<Profile> profiles;      // sorted by name
  std::vector<ProfileError> refused;  // the errors of the files that were skipped
};

// Reads one file. Returns an error if it cannot be read or parsed.
std::variant<Profile, ProfileError> load_profile(const std::string& path);

// Reads *.toml of every directory in turn; a directory that does not exist counts as empty.
// A profile from a later directory replaces one of the same name.
ProfileSet load_profiles(const std::vector<std::string>& directories);

// Returns the flat table of the profiles' routes and variables (common/route_table.h), as bytes.
std::string compile_routes(const std::vector<Profile>& profiles);

}  // namespace cacheshim
