// SPDX-License-Identifier: Apache-2.0
#include "learn/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace cacheshim::learn {
namespace {

constexpr std::size_t kWidth = 110;
constexpr std::string_view kIndent = "  ";  // indents the second and later lines of a comment

// Replaces control characters with '?'. The text may contain names that a program has chosen: a line
// break in such a name would end the comment or the string.
std::string plain(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c == 127; }, '?');
  return result;
}

std::string comment(std::string_view text) {
  std::string rest = plain(text);
  std::string lines;
  while (rest.size() > kWidth) {
    auto end = rest.rfind(' ', kWidth);
    if (end == rest.npos || end <= kIndent.size()) end = rest.find(' ', kWidth);
    if (end == rest.npos) break;
    lines += "# " + rest.substr(0, end) + "\n";
    rest = std::string(kIndent) + rest.substr(end + 1);
  }
  return lines + "# " + rest + "\n";
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : plain(text)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string list(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts) result += (result.empty() ? "" : ", ") + quoted(text);
  return "[" + result + "]";
}

std::string list(const std::vector<Observed>& observed) {
  std::vector<std::string> patterns;
  for (const Observed& one : observed) patterns.push_back(one.pattern);
  return list(patterns);
}

std::string key(std::string_view name, const std::vector<Observed>& observed) {
  std::string text;
  for (const Observed& one : observed) text += comment(one.seen);
  return observed.empty() ? "" : text + fmt::format("{} = {}\n", name, list(observed));
}

std::string entry_text(const EntryFacts& entry) {
  std::string text = "\n" + comment(entry.seen);
  for (const std::string& note : entry.notes) text += comment(note);
  text += fmt::format("[[entry]]\npath = {}\n", quoted(entry.path));
  if (!entry.endings.empty()) text += fmt::format("files = {}\n", list(entry.endings));
  text += key("complete", entry.complete) + key("complete_single", entry.complete_single);
  if (entry.is_renamed)
    text += comment("all of its files were renamed into place") + "renamed = true\n";
  return text + key("paths_in", entry.paths_in);
}

std::string flight_text(const std::vector<EntryFacts>& entries) {
  std::string text;
  for (const EntryFacts& entry : entries) {
    for (const Observed& one : entry.flight) {
      text += comment(fmt::format("{}: {}", entry.path, one.seen)) +
              fmt::format("# flight = {}\n", list(std::vector<Observed>{one}));
    }
  }
  if (text.empty()) return text;
  return comment(
             "Once the evidence is read or run, jobs may wait for these names, if the entry tells when it is complete "
             "(docs/single-flight.md):") +
         text;
}

}  // namespace

std::string profile_text(const ProfileHead& head, const CacheFacts& facts) {
  std::string text =
      comment(fmt::format("Learned by `cacheshim profile learn` from: {}", head.command));
  text += comment(
      "A guess, from what one run did: entries are published at the job's success only. Check each part against "
      "the program's source or documentation, or run several jobs at once on a mount; then set evidence to read, "
      "doc or run. docs/profiles.md says what the keys mean.");
  for (const std::string& note : head.notes) text += comment(note);
  for (const std::string& note : facts.notes) text += comment(note);
  text += fmt::format("\nname = {}\n", quoted(head.name));
  if (!head.variable.empty()) text += fmt::format("variable = {}\n", quoted(head.variable));
  if (!head.default_path.empty())
    text += fmt::format("default_paths = {}\n", list(std::vector<std::string>{head.default_path}));
  text += "evidence = \"guess\"\n";
  if (facts.is_closed_to_others) {
    text +=
        comment(
            "All files have modes like 0600, as mkstemp(3) sets them; they are published as open as their "
            "directories.") +
        "mkstemp = true\n";
  }
  for (const EntryFacts& entry : facts.entries) text += entry_text(entry);
  const std::string flight = flight_text(facts.entries);
  const std::string classes =
      key("scratch", facts.scratch) + key("lock", facts.locks) + key("baton", facts.batons);
  if (!classes.empty()) text += "\n[class]\n" + classes;
  return flight.empty() ? text : text + "\n" + flight;
}

}  // namespace cacheshim::learn
