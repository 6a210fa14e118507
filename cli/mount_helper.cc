// SPDX-License-Identifier: Apache-2.0
#include "cli/mount_helper.h"

#include <algorithm>
#include <iterator>

#include "cli/mount_options.h"

namespace cacheshim::cli {
namespace {

constexpr std::string_view kHelperName = "mount.fuse.cacheshim";

struct HelperWords {
  std::vector<std::string> options;  // texts of -o
  std::vector<std::string> others;   // SOURCE, MOUNTPOINT, and what we do not know
};

bool is_mount8_switch(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word.find_first_not_of("snv", 1) == std::string::npos;
}

HelperWords sort_words(const std::vector<std::string>& words) {
  HelperWords sorted;
  for (auto at = words.begin(); at != words.end(); ++at) {
    const bool has_value = std::next(at) != words.end();
    if (*at == "-o" && has_value) {
      sorted.options.push_back(*++at);
    } else if ((*at == "-t" || *at == "-N") && has_value) {
      ++at;
    } else if (!is_mount8_switch(*at)) {
      sorted.others.push_back(*at);
    }
  }
  return sorted;
}

std::vector<std::string> words_for_store(const HelperWords& given) {
  std::vector<std::string> words = {"mount"};
  for (const std::string& option : split_options(given.options)) {
    const bool is_ours = option.starts_with("layers=") || option.starts_with("config=");
    if (is_ours) {
      words.push_back("--" + option);
    } else {
      words.insert(words.end(), {"-o", option});
    }
  }
  if (!given.others.empty()) words.insert(words.end(), {"--store", given.others.front()});
  if (given.others.size() > 1)
    words.insert(words.end(), given.others.begin() + 1, given.others.end());
  return words;
}

std::vector<std::string> words_for_overlay(const HelperWords& given) {
  std::vector<std::string> words = {"overlay"};
  for (const std::string& text : given.options) words.insert(words.end(), {"-o", text});
  if (given.others.size() > 1)
    words.insert(words.end(), given.others.begin() + 1, given.others.end());
  return words;
}

}  // namespace

bool is_mount_helper(std::string_view program) {
  const auto slash = program.rfind('/');
  return program.substr(slash == std::string_view::npos ? 0 : slash + 1) == kHelperName;
}

std::vector<std::string> words_of_mount_helper(const std::vector<std::string>& words) {
  const HelperWords given = sort_words(words);
  const std::vector<std::string> options = split_options(given.options);
  const bool is_overlay = std::any_of(options.begin(), options.end(), [](const std::string& word) {
    return word.starts_with("lowerdir=");
  });
  return is_overlay ? words_for_overlay(given) : words_for_store(given);
}

}  // namespace cacheshim::cli
