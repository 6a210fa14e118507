// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier_catalogue.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "remote/engines/file_tier_layout.h"
#include "store/sys/sys.h"

// A sweep lists the shards in the order of their names, and the names in a shard in their order. It takes one or more
// pages. It reports the objects whose inode changed (ctime) at `since` - slack or later; `since` is the time at which
// the previous sweep began. It does not use the modification time, which is the time at which the object was written:
// the writer may have been stopped for any time before it linked the file. link(2) sets the ctime of the file, and of
// the directory. No call can set a ctime back, so a sweep also reports a tree that was copied or restored.
//
// No object is lost:
// 1. The sweep reads the server's clock (`begin`), and only then lists directories.
// 2. An object that was linked before `begin` is in its shard's list. If it was linked after the previous sweep began,
//    the ctimes of file and shard are not older than `since` - slack, so this sweep reports it. If it was linked
//    earlier, an earlier sweep has reported it by the same rule; the first sweep reports all names.
// 3. An object that is linked after `begin` may appear in a part that the sweep has already listed. The next sweep
//    reports it, because its `since` is this `begin`.
// 4. The slack covers everything that makes a ctime older than the link: the granularity of timestamps; a server that
//    reads its clock before it changes the directory; the difference between the clients' clocks, where clients set
//    times. Where clients set times, a request can also be delayed after the client has read its clock. Therefore
//    try_put() touches the shard if link(2) was slow. The removal of the name in tmp/ sets the ctime of the file again.
// 5. If `since` is later than the clock, the clock was set back, and the sweep reports all names.
namespace cacheshim::remote::file_tier {
namespace {

using std::chrono::milliseconds;

struct Sweep {
  ServerTime since{0};  // 0: report everything
  ServerTime begin{0};  // 0: the sweep has not begun
  std::string shard;    // the last name that was examined
  std::string name;
};

std::string position_of(const Sweep& sweep) {
  return fmt::format("{}:{}:{}:{}", sweep.since.count(), sweep.begin.count(), sweep.shard,
                     sweep.name);
}

Sweep parse_position(std::string_view text) {
  std::string_view fields[4];
  for (std::string_view& field : fields) {
    const std::size_t end = std::min(text.find(':'), text.size());
    field = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::int64_t since = 0;
  std::int64_t begin = 0;
  if (!parse(fields[0], since) || !parse(fields[1], begin) || since < 0 || begin < 0) return {};
  return {ServerTime(since), ServerTime(begin), std::string(fields[2]), std::string(fields[3])};
}

// Returns the time at which a sweep begins, which is not later than the server's clock.
Result<ServerTime> sweep_begin(const Root& root, ServerTime since) {
  const auto tmp = open_dirs(root, {"tmp"}, Missing::kFail);
  if (tmp.failed_with(ENOENT)) return since;
  if (!tmp) return tmp.error();
  (void)touch(tmp->get());  // without the right to write, the result is tmp's last change
  return modified_at(tmp->get());
}

// Returns the key of a file in a shard; "" if the file is not an object.
std::string key_of_file(int dir, const std::string& shard, const std::string& name) {
  std::string key;
  if (name.find('~') == std::string::npos) {
    key = decode(name);
  } else if (const auto file = sys::open_beneath(dir, name, kRead)) {
    const auto start = read_start(file->get());
    if (start) key = second_line(*start, kObjectMark);
  }
  const Place place = place_of(key);
  return is_valid(key, kMostKeyBytes) && place.shard == shard && place.name == name ? key : "";
}

// Adds the keys of the shard `sweep.shard` whose names come after `sweep.name`. Returns false when the page reaches a
// limit.
Result<bool> add_shard(int objects, Sweep& sweep, ServerTime oldest, const PageLimits& limits,
                       CataloguePage& page) {
  CACHESHIM_TRY(dir, sys::open_beneath(objects, sweep.shard, kDirectory));
  CACHESHIM_CHECK(sys::revalidate_attributes(dir.get()));
  CACHESHIM_TRY(st, sys::stat_fd(dir.get()));
  if (time_of(st.st_ctim) < oldest) return true;
  CACHESHIM_TRY(names, names_in(dir.get()));
  for (auto at = std::upper_bound(names.begin(), names.end(), sweep.name); at != names.end();
       ++at) {
    sweep.name = *at;
    // Uses the attributes in the client's cache, which usually came with the list (READDIRPLUS). A request to the
    // server for each file would take 100 times as long. The client can have older attributes only for a file that it
    // has seen in tmp/.
    const auto file = oldest.count() > 0 ? sys::stat_at(dir.get(), *at) : Result(st);
    if (file.failed_with(ENOENT)) continue;
    if (!file) return file.error();
    std::string key =
        time_of(file->st_ctim) < oldest ? "" : key_of_file(dir.get(), sweep.shard, *at);
    if (!key.empty()) page.keys.push_back(std::move(key));
    if (limits.is_reached(page)) return false;
  }
  return true;
}

}  // namespace

Result<CataloguePage> try_page(const Root& root, const std::string& position, milliseconds slack,
                               const PageLimits& limits) {
  Sweep sweep = parse_position(position);
  CataloguePage page;
  if (sweep.begin.count() == 0) {
    CACHESHIM_TRY(begin, sweep_begin(root, sweep.since));
    sweep.begin = begin;
    if (sweep.since > begin + slack) sweep.since = ServerTime(0);
  }
  const ServerTime oldest = std::max(sweep.since - slack, ServerTime(0));
  const auto objects = open_dirs(root, {"objects"}, Missing::kFail);
  if (!objects && !objects.failed_with(ENOENT)) return objects.error();
  auto shards = objects ? names_in(objects->get()) : std::vector<std::string>();
  if (!shards) return shards.error();
  for (const std::string& shard : *shards) {
    if (shard < sweep.shard || shard.size() != 2) continue;
    if (shard > sweep.shard) sweep.name.clear();
    sweep.shard = shard;
    const auto added = add_shard(objects->get(), sweep, oldest, limits, page);
    if (added.failed_with(ENOENT) || added.failed_with(ENOTDIR)) continue;
    if (!added) return added.error();
    if (!*added) {
      page.position = position_of(sweep);
      page.is_last = false;
      return page;
    }
  }
  page.position = position_of({.since = sweep.begin, .begin = {}, .shard = {}, .name = {}});
  return page;
}

}  // namespace cacheshim::remote::file_tier
