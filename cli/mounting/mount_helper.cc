// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/mount_helper.h"

#include <algorithm>
#include <iterator>

#include "cli/configuration/mount_options.h"

namespace cacheshim::cli {
namespace {

constexpr std::string_view kMountName = "mount.fuse.cacheshim";
constexpr std::string_view kUmountName = "umount.fuse.cacheshim";

struct HelperWords {
  std::vector<std::string> options;  // the arguments of -o
  std::vector<std::string> others;   // SOURCE, MOUNTPOINT, and unknown words
};

std::string_view last_component(std::string_view path) {
  const auto slash = path.rfind('/');
  return path.substr(slash == std::string_view::npos ? 0 : slash + 1);
}

// Whether the word is '-' followed only by letters of `letters`.
bool has_only_letters(const std::string& word, const char* letters) {
  return word.size() > 1 && word[0] == '-' &&
         word.find_first_not_of(letters, 1) == std::string::npos;
}

// `ignored` are the letters of options that have no effect here.
HelperWords sort_words(const std::vector<std::string>& words, const char* ignored) {
  HelperWords sorted;
  for (auto at = words.begin(); at != words.end(); ++at) {
    const bool has_value = std::next(at) != words.end();
    if (*at == "-o" && has_value) {
      sorted.options.push_back(*++at);
    } else if ((*at == "-t" || *at == "-N") && has_value) {
      ++at;
    } else if (!has_only_letters(*at, ignored)) {
      sorted.others.push_back(*at);
    }
  }
  return sorted;
}

std::vector<std::string> words_for_store(const HelperWords& given) {
  std::vector<std::string> words = {"mount"};
  for (const std::string& option : split_options(given.options)) {
    if (option == "suid" || option == "dev") continue;  // newer versions of mount(8) pass these defaults
    const bool is_ours = option.starts_with("layers=") || option.starts_with("config=");
    if (is_ours) {
      words.push_back("--" + option);
    } else {
      words.insert(words.end(), {"-o", option});
    }
  }
  if (!given.others.empty()) words.push_back("--store=" + given.others.front());
  if (given.others.size() > 1)
    words.insert(words.end(), given.others.begin() + 1, given.others.end());
  return words;
}

// Escapes a value so that split_options() and undo_backslashes() restore it.
std::string escape_value(const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::vector<std::string> words_for_overlay(const HelperWords& given, bool is_root) {
  std::vector<std::string> words = {"overlay"};
  if (is_root) words.insert(words.end(), {"-o", "suid,dev"});
  if (!given.others.empty()) {
    words.insert(words.end(), {"-o", "fsname=" + escape_value(given.others.front())});
  }
  for (const std::string& text : given.options) words.insert(words.end(), {"-o", text});
  if (given.others.size() > 1)
    words.insert(words.end(), given.others.begin() + 1, given.others.end());
  return words;
}

std::vector<std::string> words_for_remount(const HelperWords& given) {
  std::vector<std::string> words = {"remount"};
  for (const std::string& text : given.options) words.insert(words.end(), {"-o", text});
  if (given.others.size() > 1)
    words.insert(words.end(), given.others.begin() + 1, given.others.end());
  return words;
}

}  // namespace

bool is_mount_helper(std::string_view program) { return last_component(program) == kMountName; }

bool is_umount_helper(std::string_view program) { return last_component(program) == kUmountName; }

std::vector<std::string> words_of_mount_helper(const std::vector<std::string>& words,
                                               bool is_root) {
  const HelperWords given = sort_words(words, "snv");
  const std::vector<std::string> options = split_options(given.options);
  if (std::find(options.begin(), options.end(), "remount") != options.end()) {
    return words_for_remount(given);
  }
  const bool is_overlay = std::any_of(options.begin(), options.end(), [](const std::string& word) {
    return word.starts_with("lowerdir=");
  });
  return is_overlay ? words_for_overlay(given, is_root) : words_for_store(given);
}

std::vector<std::string> words_of_umount_helper(const std::vector<std::string>& words) {
  const HelperWords given = sort_words(words, "nv");
  std::vector<std::string> all = {"umount-as-helper"};
  all.insert(all.end(), given.others.begin(), given.others.end());
  return all;
}

}  // namespace cacheshim::cli
