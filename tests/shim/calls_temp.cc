// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <algorithm>
#include <cstring>

namespace calls {
namespace {

// Returns the name that libc has chosen, with the random part hidden: "@/maXXXXXXb" if six
// characters were filled in.
std::string shape(const std::string& filled, const std::string& pattern) {
  const std::size_t at = pattern.find("XXXXXX");
  if (filled == pattern) return pattern + " (not filled)";
  if (filled.size() != pattern.size() || at == std::string::npos) return filled;
  return filled.substr(0, at) + "XXXXXX" + filled.substr(at + 6) + " (filled)";
}

std::string template_text;

char* prepare(const std::string& pattern) {
  template_text = pattern;
  return template_text.data();
}

void finish(int fd, const std::string& pattern) {
  say("  " + shape(template_text, pattern));
  if (fd < 0) return;
  if (::write(fd, "temp", 4) != 4) say("cannot write");
  ::close(fd);
  say("  holds " + content(template_text));
  forget(template_text);
}

void make_files() {
  const std::string good = at("maXXXXXX");
  const std::string suffixed = at("maXXXXXX.so");
  const std::string missing = at("missing/maXXXXXX");
  const std::string bad = at("maXXX");
  for (const std::string& pattern : {good, missing, bad, std::string("XXX"), std::string()}) {
    finish(CALL(mkstemp, prepare(pattern)), pattern);
    finish(CALL(mkstemp64, prepare(pattern)), pattern);
    finish(CALL(mkostemp, prepare(pattern), O_CLOEXEC), pattern);
    finish(CALL(mkostemp64, prepare(pattern), O_APPEND), pattern);
  }
  for (const int suffix : {3, 0, 100, -1}) {
    finish(CALL(mkstemps, prepare(suffixed), suffix), suffixed);
    finish(CALL(mkstemps64, prepare(suffixed), suffix), suffixed);
    finish(CALL(mkostemps, prepare(suffixed), suffix, O_CLOEXEC), suffixed);
    finish(CALL(mkostemps64, prepare(suffixed), suffix, O_CLOEXEC), suffixed);
  }
}

void make_directories_and_names() {
  for (const std::string& pattern : {at("dirXXXXXX"), at("missing/dXXXXXX"), at("dirXX")}) {
    char* const text = prepare(pattern);
    const char* const made = CALL(mkdtemp, text);
    say("  " + shape(template_text, pattern) + (made == text ? ", the template itself" : ""));
    if (made != nullptr) (void)::rmdir(made);
    char* const name = prepare(pattern);
    say(CALL(mktemp, name) == name ? "  the template itself" : "  another pointer");
    say("  " + (template_text[0] == '\0' ? "empty" : shape(template_text, pattern)));
  }
}

void make_names_in(const char* directory) {
  char* const name = CALL(tempnam, directory, "pre");
  if (name == nullptr) return;
  const std::string text(name);
  say("  in " + text.substr(0, text.rfind('/')) + ", of " +
      std::to_string(text.size() - text.rfind('/')) + " characters");
  std::free(name);
}

}  // namespace

void run_temp_calls() {
  make_files();
  make_directories_and_names();
  make_names_in(root.c_str());
  make_names_in(at("missing").c_str());
  make_names_in(nullptr);
}

}  // namespace calls
