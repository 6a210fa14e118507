// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <map>
#include <memory>

#include "store/base/evictor.h"
#include "store/base/open_verifier.h"
#include "store/base/verifier.h"
#include "store/layer/layer.h"
#include "store/sys/digest.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

using std::chrono::hours;

constexpr std::time_t kNow = 1'000'000'000;
constexpr std::time_t kHour = 3600;

// Returns, for each element, a unit of 10 bytes and 2 files that was last used that many hours ago.
std::vector<BaseUnit> units_used(const std::vector<int>& hours_ago) {
  std::vector<BaseUnit> units;
  for (const int ago : hours_ago) {
    const std::string name = "fam/u" + std::to_string(ago);
    units.push_back({name, {name}, 10, 2, kNow - ago * kHour});
  }
  return units;
}

std::string chosen(const EvictionReport& report) {
  std::string text;
  for (const EvictedUnit& one : report.evicted) {
    text += one.unit.unit + ":" + one.reason + (one.is_young ? ":young " : " ");
  }
  return text;
}

EvictionReport choose(const EvictionLimits& limits, std::uint64_t free_bytes = 1000) {
  return choose_units(units_used({1, 300, 100, 49, 200}), limits, kNow, free_bytes, 2000);
}

TEST(Eviction, TakesTheLeastRecentlyUsedUntilTheSizeFits) {
  EvictionLimits limits;
  EXPECT_FALSE(limits.are_set());
  EXPECT_EQ(chosen(choose(limits)), "");
  limits.max_size = 30;
  const EvictionReport report = choose(limits);
  EXPECT_EQ(chosen(report), "fam/u300:max_size fam/u200:max_size ");
  EXPECT_EQ(report.bytes, 20U);
  EXPECT_EQ(report.files, 4U);
  EXPECT_EQ(report.bytes_before, 50U);
  EXPECT_EQ(report.files_before, 10U);
  EXPECT_FALSE(report.is_over);
}

TEST(Eviction, CountsFilesAndAges) {
  EvictionLimits limits;
  limits.max_files = 7;
  EXPECT_EQ(chosen(choose(limits)), "fam/u300:max_files fam/u200:max_files ");
  limits = {};
  limits.max_age = hours(150);
  EXPECT_EQ(chosen(choose(limits)), "fam/u300:max_age fam/u200:max_age ");
  limits.max_age = hours(0);  // min_age still protects newer units
  EXPECT_EQ(chosen(choose(limits)),
            "fam/u300:max_age fam/u200:max_age fam/u100:max_age fam/u49:max_age ");
}

TEST(Eviction, SparesRecentlyUsedUnitsUnlessSpaceRunsOut) {
  EvictionLimits limits;
  limits.max_size = 0;
  const EvictionReport report = choose(limits);
  EXPECT_EQ(report.evicted.size(), 4U);
  EXPECT_TRUE(report.is_over);
  limits.min_age = hours(0);
  EXPECT_EQ(choose(limits).evicted.size(), 5U);
  limits = {};
  limits.min_free = 1015;
  EXPECT_EQ(chosen(choose(limits)), "fam/u300:min_free fam/u200:min_free ");
  limits.min_free.reset();
  limits.min_free_percent = 52;  // 52 percent of 2000
  EXPECT_EQ(chosen(choose(limits)),
            "fam/u300:min_free fam/u200:min_free fam/u100:min_free fam/u49:min_free ");
  limits.min_free_percent = 53;
  EXPECT_NE(chosen(choose(limits)).find("fam/u1:min_free:young"), std::string::npos);
}

class BaseTest : public OverlayTest {
 protected:
  BaseTest() {
    auto parsed = parse_profile(
        "name = \"web\"\nevidence = \"read\"\n[[entry]]\npath = \"*/*\"\nfiles = [\".body\", \"\"]\n"
        "renamed = true\n[class]\nlock = [\"*.lock\"]\nshared = [\"index\"]\n",
        "web.toml");
    profiles_.push_back(std::get<Profile>(std::move(parsed)));
    auto opened = Store::open(scratch_ / "base", "");
    store_ = std::make_unique<Store>(std::get<Store>(std::move(opened)));
  }
  // Writes a file into the base and records it as published.
  void publish(const std::string& unit, const std::string& path, const std::string& text) {
    scratch_.write("base/" + path, text);
    const auto fd = sys::open_path(scratch_ / ("base/" + path), O_RDONLY);
    AuditRecord record;
    record.unit = unit;
    record.files = {{path, text.size(), *digest_of(fd->get())}};
    ASSERT_TRUE(store_->audit().append(record));
  }
  VerifyReport verify(bool repair) {
    auto report = verify_base(*store_, entries_, repair, [](auto, auto) {});
    EXPECT_TRUE(report);
    return *std::move(report);
  }

  std::unique_ptr<Store> store_;
};

TEST_F(BaseTest, IsListedByUnits) {
  for (const char* path : {"fam/K/a", "fam/K/b/c", "fam/loose", "web/x/k", "web/x/k.body",
                           "web/x/j", "web/x/y.lock", "unknown/f/g", "unknown/h", "rootfile"}) {
    scratch_.write("base/" + std::string(path), "text");
  }
  std::map<std::string, BaseUnit> units;
  for (BaseUnit& unit : list_base_units(*store_, entries_)) units[unit.unit] = unit;
  ASSERT_EQ(units.size(), 6U);
  EXPECT_EQ(units["fam/K"].files, 4U);  // two directories, two files
  EXPECT_EQ(units["fam/K"].paths, Names{"fam/K"});
  EXPECT_GT(units["fam/K"].bytes, 0U);
  EXPECT_EQ(units["fam/loose"].files, 1U);
  Names pair = units["web/x/k.body"].paths;
  std::sort(pair.begin(), pair.end());
  EXPECT_EQ(pair, (Names{"web/x/k", "web/x/k.body"}));
  EXPECT_EQ(units["web/x/j.body"].paths, Names{"web/x/j"});
  EXPECT_EQ(units["unknown/f"].files, 2U);
  EXPECT_TRUE(units.contains("unknown/h"));
}

TEST_F(BaseTest, LastUseIsTheLatestOfItsFiles) {
  scratch_.write("base/fam/K/a", "1");
  scratch_.write("base/fam/K/b", "2");
  const timespec old[2] = {{kNow, 0}, {kNow, 0}};
  const timespec read_later[2] = {{kNow + 50, 0}, {kNow - 9, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (scratch_ / "base/fam/K/a").c_str(), old, 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, (scratch_ / "base/fam/K/b").c_str(), read_later, 0), 0);
  EXPECT_EQ(list_base_units(*store_, entries_).at(0).last_use, kNow + 50);
}

TEST_F(BaseTest, DiscardedUnitsGoToTrashAndStayReadable) {
  scratch_.write("base/fam/K/a", "text");
  const auto held = sys::open_path(scratch_ / "base/fam/K/a", O_RDONLY);
  const auto units = list_base_units(*store_, entries_);
  ASSERT_TRUE(discard_unit(*store_, units.at(0), AuditRecord::Event::kEvict, "max_size"));
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  EXPECT_EQ(sys::list_dir(store_->trash())->size(), 1U);
  sweep_trash(*store_, 1000);
  EXPECT_EQ(sys::list_dir(store_->trash())->size(), 1U);
  sweep_trash(*store_, 0);
  EXPECT_EQ(sys::list_dir(store_->trash())->size(), 0U);
  EXPECT_EQ(*sys::read_all(held->get()), "text");
}

TEST_F(BaseTest, VerifyFindsDifferencesFromTheRecords) {
  publish("fam/good", "fam/good/a", "right");
  publish("fam/bad", "fam/bad/a", "right");
  publish("fam/bad", "fam/bad/b", "right");
  publish("fam/part", "fam/part/a", "right");
  publish("fam/part", "fam/part/b", "right");
  publish("fam/gone", "fam/gone/a", "right");
  publish("web/index", "web/index", "changes");
  scratch_.write("base/fam/bad/a", "wrong");
  scratch_.write("base/web/index", "changed");
  scratch_.write("base/fam/older/a", "x");
  std::filesystem::remove(scratch_ / "base/fam/part/b");
  std::filesystem::remove_all(scratch_ / "base/fam/gone");
  const VerifyReport report = verify(false);
  ASSERT_EQ(report.damaged.size(), 2U);
  EXPECT_EQ(report.damaged[0].path + report.damaged[0].why,
            "fam/bad/aits content differs from the record");
  EXPECT_EQ(report.damaged[1].path + report.damaged[1].why, "fam/part/bmissing");
  EXPECT_EQ(report.files, 3U);
  EXPECT_EQ(report.unrecorded, 1U);
  EXPECT_TRUE(scratch_.exists("base/fam/bad/a"));
  const VerifyReport repaired = verify(true);
  EXPECT_EQ(repaired.repaired, (Names{"fam/bad", "fam/part"}));
  EXPECT_FALSE(scratch_.exists("base/fam/bad"));
  EXPECT_TRUE(scratch_.exists("base/fam/good/a"));
  EXPECT_TRUE(verify(false).damaged.empty());
  publish("fam/bad", "fam/bad/c", "anew");  // a new entry of this name, with other files
  EXPECT_TRUE(verify(false).damaged.empty());
}

// While an object of this class exists, the process cannot open another descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd lowest_free(::open("/", O_PATH | O_CLOEXEC));
    const rlimit none{static_cast<rlim_t>(lowest_free.get()), before_.rlim_max};
    (void)::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(BaseTest, AFileThatCannotBeOpenedForLackOfDescriptorsIsNotDamaged) {
  publish("fam/K", "fam/K/a", "right");
  const auto opened = sys::open_path(scratch_ / "base/fam/K/a", O_RDONLY);
  const AuditFile file{.path = "fam/K/a", .size = 5, .digest = *digest_of(opened->get())};
  ASSERT_EQ(*fault_of(store_->base(), file), "");
  const NoDescriptors none;
  EXPECT_TRUE(fault_of(store_->base(), file).failed_with(EMFILE));
}

TEST_F(BaseTest, VerifyOnOpenChecksAnEntryLaterIfItLacksDescriptors) {
  publish("fam/K", "fam/K/a.so", "right");
  scratch_.write("base/fam/K/a.so", "wrong");
  OpenVerifier verifier(*store_, entries_);
  {
    const NoDescriptors none;
    EXPECT_EQ(verifier.check("fam/K/k.json").why, "");
  }
  EXPECT_EQ(verifier.check("fam/K/k.json").why,
            "'fam/K/a.so': its content differs from the record");
}

TEST_F(BaseTest, OnlyOneDaemonAtATimeEvictsOrRepairs) {
  auto lock = store_->try_lock_base();
  ASSERT_TRUE(lock);
  EXPECT_TRUE(store_->try_lock_base().failed_with(EWOULDBLOCK));
  lock = UniqueFd();
  EXPECT_TRUE(store_->try_lock_base());
}

TEST_F(BaseTest, OnlyAbandonedLayersAreEnded) {
  const auto make = [&](const std::string& job, const std::string& node, std::time_t started) {
    LayerRecord record;
    record.job = job;
    record.cycle = "0";
    record.node = node;
    record.started = started;
    return *Layer::take(store_->layers(), record);
  };
  const std::time_t now = std::time(nullptr);
  (void)make("crashed", "here", now - 100);
  (void)make("new", "here", now + 100);
  (void)make("elsewhere", "there", now - 100);
  (void)make("longgone", "there", now - 10'000);
  (void)make("uid-7", "there", now - 10'000);
  const Layer held = make("held", "here", now - 100);
  EXPECT_EQ(end_abandoned_layers(store_->layers(), "here", now, 1000), 2U);
  const auto names = [&](const std::string& job) {
    return sys::list_dir(sys::open_beneath(store_->layers(), job, O_RDONLY)->get())->at(0).name;
  };
  EXPECT_NE(names("crashed").find(".ended-"), std::string::npos);
  EXPECT_NE(names("longgone").find(".ended-"), std::string::npos);
  for (const char* job : {"new", "elsewhere", "uid-7", "held"}) {
    EXPECT_EQ(names(job).find(".ended-"), std::string::npos) << job;
  }
}

}  // namespace
}  // namespace cacheshim
