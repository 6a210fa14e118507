// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <map>

#include "common/route_table.h"
#include "store/profiles/profile.h"

// Compiles the profiles' default paths into the flat table that the preloaded library maps.
namespace cacheshim {
namespace {

std::string join(const std::vector<std::string>& texts, char delimiter) {
  std::string joined;
  for (const std::string& text : texts) {
    if (!joined.empty()) joined.push_back(delimiter);
    joined += text;
  }
  return joined;
}

// The strings of a route table, each stored once.
class StringPool {
 public:
  explicit StringPool(std::size_t start) : start_(start) { (void)add(""); }

  std::uint32_t add(const std::string& text) {
    const auto [at, added] = offsets_.try_emplace(text, start_ + bytes_.size());
    if (added) bytes_.append(text).push_back('\0');
    return static_cast<std::uint32_t>(at->second);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::size_t start_;
  std::string bytes_;
  std::map<std::string, std::size_t> offsets_;
};

}  // namespace

std::string compile_routes(const std::vector<Profile>& profiles) {
  // A profile without default paths may still have a variable to set, so it gets one record with an empty path.
  std::vector<std::pair<const Profile*, std::string>> routes;
  for (const Profile& profile : profiles) {
    if (profile.default_paths.empty() && profile.sets_variable()) routes.emplace_back(&profile, "");
    for (const std::string& path : profile.default_paths) routes.emplace_back(&profile, path);
  }
  StringPool strings(sizeof(RouteTableHeader) + routes.size() * sizeof(RouteRecord));
  std::string records;
  for (const auto& [profile, path] : routes) {
    // If the library does not set the profile's variable and the user has set it, the cache is
    // elsewhere: do not redirect the default path.
    std::vector<std::string> unless = profile->unless;
    const bool sets = profile->sets_variable();
    if (!sets && !profile->variable.empty()) unless.push_back(profile->variable);
    const RouteRecord record{strings.add(profile->name), strings.add(sets ? profile->variable : ""),
                             strings.add(join(unless, ':')), strings.add(path)};
    char bytes[sizeof record];
    std::memcpy(bytes, &record, sizeof record);
    records.append(bytes, sizeof bytes);
  }
  const std::size_t size = sizeof(RouteTableHeader) + records.size() + strings.bytes().size();
  const RouteTableHeader header{kRouteTableMagic, kRouteTableVersion,
                                static_cast<std::uint32_t>(size),
                                static_cast<std::uint32_t>(routes.size())};
  std::string table(sizeof header, '\0');
  std::memcpy(table.data(), &header, sizeof header);
  return table + records + strings.bytes();
}

}  // namespace cacheshim
