// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "store/profiles/name_class.h"
#include "store/profiles/path_pattern.h"

// What is known of one cache family, read from one TOML file (docs/profiles.md). Nothing of a family is
// known to C++.
namespace cacheshim {

// How sure we are of a profile.
enum class Evidence {
  kGuess,  // neither early publishing nor flight, and no shared names
  kDoc,    // the program's documentation says so
  kRead,   // its source does
  kRun,    // and it has been run on a mount
};
std::string_view to_string(Evidence evidence);

// Which files belong together: what is published, and evicted, whole.
struct EntryRule {
  PathPattern path;  // of the entry's directory, below the cache's; or of each of its files
  // Empty: an entry is a directory. Else it is the files whose names differ in these endings alone.
  std::vector<std::string> files = {};
  // It is complete when it has a file of such a name, or has one as its only file, and no baton; that is
  // looked at when such a file gets its name or is closed, when a directory gets its name by a rename, and
  // when a baton is removed. Patterns of names.
  std::vector<std::string> complete = {};
  std::vector<std::string> complete_single = {};
  // A file of such a name does the same once the job has come to its end.
  std::vector<std::string> complete_at_end = {};
  // What is closed without a rename tells nothing. Without patterns it is complete when the directory, or all
  // of its files, have their names.
  bool renamed = false;
  // JSON files of these names hold absolute paths.
  std::vector<std::string> paths_in = {};
  // A lock file with one '*' in its path, below the cache's directory, or, if it begins with "./", below the one that the
  // entry is in: who builds the entry has it locked. '*' stands for the entry's name; of files, for what that begins
  // with, up to a '.'. The entry is complete when that is unlocked (a baton: or removed); a holder's death, or a
  // close without an unlock, tells nothing.
  std::string built_under = {};
  // A thread that has missed a name of class `flight` builds the entry itself, before it turns to the next: one that
  // begins another entry has given up the one before, if that is not complete.
  bool one_by_one = false;
  // Its programs replace its files as part of ordinary use: an index, a manifest, a response with an age. A job that reads such
  // an entry and replaces it has not rejected it.
  bool renewed = false;

  bool is_directory() const { return files.empty(); }
  // Whether completeness can be seen at all; else only the job's success tells.
  bool says_when_complete() const { return built_under.empty() && (renamed || !needs_no_name()); }
  // Whether completeness can be seen before the job's success.
  bool is_end_seen() const { return says_when_complete() || !built_under.empty(); }
  bool needs_no_name() const { return complete.empty() && complete_single.empty(); }
  bool completes(std::string_view file_name) const;
  bool completes_alone(std::string_view file_name) const;
  bool completes_at_end(std::string_view file_name) const;
  bool holds_paths(std::string_view file_name) const;
  // Whether `entry` is built under this lock file. Both paths are below the cache's directory.
  bool is_built_under(std::string_view lock_file, std::string_view entry) const;
  // The directory whose `built_under` is this lock file; "" if only the entry's own path can tell.
  std::string entry_built_under(std::string_view lock_file) const;
};

struct Profile {
  std::string name;                        // directory name in the store and under the mount
  std::string variable;                    // environment variable that moves the cache, or empty
  // Whether preloaded programs that have not set `variable` get it set. Not for a cache that is off without it, or
  // that the variable would take out of another place where programs look for it.
  bool set_variable = true;
  std::vector<std::string> unless;         // variables that, when set, mean: leave it alone
  std::vector<std::string> default_paths;  // "~/.triton/cache"
  std::vector<EntryRule> entries;          // the first that matches counts
  std::vector<std::pair<NameClass, PathPattern>> classes;  // likewise, scratch names first
  // Its files are made by mkstemp(3), whose mode 0600 is nobody's wish: they are published as open to
  // others as the directory is that the entry is in.
  bool mkstemp = false;
  Evidence evidence = Evidence::kGuess;
  std::string origin;  // the file it was read from, or empty

  // `path`: below the cache's directory. A pattern without '/' is for names anywhere below.
  NameClass class_of(std::string_view path) const;
  // class_of(path) == wanted, without a look at the other classes for most paths.
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
// Unknown keys, missing names, values of a wrong type and unknown evidence are errors.
std::variant<Profile, ProfileError> parse_profile(std::string_view text, std::string_view origin);

struct ProfileSet {
  std::vector<Profile> profiles;      // sorted by name; a later directory's profile replaces
  std::vector<ProfileError> refused;  // the others go on without these
};

// Reads one file. The error is also that of a file that cannot be read.
std::variant<Profile, ProfileError> load_profile(const std::string& path);

// Reads *.toml of every directory in turn; a directory that does not exist counts as empty.
// A profile from a later directory replaces one of the same name.
ProfileSet load_profiles(const std::vector<std::string>& directories);

// The flat table of all default paths (common/route_table.h) as bytes.
std::string compile_routes(const std::vector<Profile>& profiles);

}  // namespace cacheshim
