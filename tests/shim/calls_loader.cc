// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <filesystem>

namespace calls {
namespace {

// Calls the function `name` of a library, prints the result, and closes the library. Prints "none"
// if the library has no such function.
void use(void* handle, const char* name) {
  if (handle == nullptr) return;
  void* const function = ::dlsym(handle, name);
  say(std::string("  ") + name + " = " +
      (function == nullptr ? "none" : std::to_string(reinterpret_cast<int (*)()>(function)())));
  ::dlclose(handle);
}

void copy(const std::string& from, const std::string& to) {
  const int in = ::open(from.c_str(), O_RDONLY);
  const int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0700);
  char piece[4096];
  for (ssize_t got; (got = ::read(in, piece, sizeof piece)) > 0;) {
    if (::write(out, piece, static_cast<std::size_t>(got)) != got) say("cannot write " + to);
  }
  ::close(in);
  ::close(out);
}

// Makes a library that has an RPATH call dlopen: with a path, with the name of a library in the RPATH's directory, and
// with the name of a library that is not in that directory.
void open_from_a_library() {
  void* const caller = CALL(dlopen, at("lib/libshim_caller.so").c_str(), RTLD_NOW);
  if (caller == nullptr) return;
  using Open = void* (*)(const char*);
  const Open open_from_here = reinterpret_cast<Open>(::dlsym(caller, "open_from_here"));
  use(open_from_here(at("lib/libshim_branch.so").c_str()), "branch");
  say("  by its RPATH");
  use(open_from_here("libshim_leaf.so"), "leaf");
  say(open_from_here("libshim_branch.so") == nullptr ? "  not in its RPATH" : "  found elsewhere");
  ::dlclose(caller);
}

}  // namespace

void run_loader_calls() {
  const std::string built = std::getenv("TEST_LIBRARIES");
  for (const char* name : {"lib", "lib/leaves"}) (void)::mkdir(at(name).c_str(), 0700);
  copy(built + "/libshim_caller.so", at("lib/libshim_caller.so"));
  copy(built + "/libshim_branch.so", at("lib/libshim_branch.so"));
  copy(built + "/libshim_leaf.so", at("lib/leaves/libshim_leaf.so"));
  use(CALL(dlopen, at("lib/leaves/libshim_leaf.so").c_str(), RTLD_NOW), "leaf");
  use(CALL(dlopen, (root + "/lib/../lib//leaves/libshim_leaf.so").c_str(), RTLD_LAZY), "leaf");
  // Fails, because the library's dependency cannot be found.
  (void)CALL(dlopen, at("lib/libshim_branch.so").c_str(), RTLD_NOW);
  (void)CALL(dlopen, at("lib/missing.so").c_str(), RTLD_NOW);
  (void)CALL(dlopen, "libshim_leaf.so", RTLD_NOW);
  open_from_a_library();
  use(CALL(dlmopen, LM_ID_NEWLM, at("lib/leaves/libshim_leaf.so").c_str(), RTLD_NOW), "leaf");
  (void)CALL(dlmopen, LM_ID_BASE, at("lib/missing.so").c_str(), RTLD_NOW);
  say(CALL(dlopen, nullptr, RTLD_NOW) == nullptr ? "  no program" : "  the program");
  for (const char* name :
       {"lib/libshim_caller.so", "lib/libshim_branch.so", "lib/leaves/libshim_leaf.so"}) {
    forget(at(name));  // the test compares contents, and these files are long
  }
}

}  // namespace calls
