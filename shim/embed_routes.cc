// SPDX-License-Identifier: Apache-2.0
// embed_routes OUTPUT PROFILE.toml…: writes the profiles' route table as the bytes of a C array.
// Runs at build time only.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include "store/profiles/profile.h"

int main(int argc, char** argv) {
  std::vector<cacheshim::Profile> profiles;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    auto parsed = cacheshim::parse_profile(text.str(), argv[i]);
    if (const auto* problem = std::get_if<cacheshim::ProfileError>(&parsed)) {
      std::fprintf(stderr, "embed_routes: %s\n", problem->message.c_str());
      return 1;
    }
    profiles.push_back(std::get<cacheshim::Profile>(std::move(parsed)));
  }
  std::ofstream out(argc > 1 ? argv[1] : "/dev/stdout");
  for (const char c : cacheshim::compile_routes(profiles)) {
    out << static_cast<unsigned>(static_cast<unsigned char>(c)) << ",\n";
  }
  return out.flush() ? 0 : 1;
}
