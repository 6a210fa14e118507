// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "common/direct_page.h"
#include "fuse/jobs/view_filter.h"
#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/overlay/copy_up.h"
#include "store/sys/paths.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {
namespace {

// Reads the filter as a process of the view does: through a mapping of the file. Maps the file again once the filter is
// retired.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}
  ~Reader() { unmap(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Decides as the library does: true means that the mount must answer.
  bool may_be_shadowed(std::string_view path) {
    if (!view_ || view_.is_retired()) map();
    if (!view_) return true;
    ShadowProbes probes;
    probes.begin(view_);
    while (!path.empty()) {
      if (!probes.descend(take_component(path))) return true;
    }
    return !probes.finish() || probes.may_be_shadowed();
  }
  int maps() const { return maps_; }

 private:
  void unmap() {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = nullptr;
    view_ = FilterView();
  }
  void map() {
    unmap();
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY));
    if (!fd) return;
    size_ = static_cast<std::size_t>(::lseek(fd.get(), 0, SEEK_END));
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
    view_ = FilterView::over(data_, size_);
    ++maps_;
  }

  const std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  FilterView view_;
  int maps_ = 0;
};

class ViewFilterTest : public ::testing::Test {
 protected:
  ViewFilterTest() { filter_.open(::geteuid(), ::getegid()); }

  Scratch scratch_;
  std::vector<Profile> profiles_ = test_profiles();
  DirectAccess directories_{scratch_.open_dir("views"), scratch_.open_dir("counters"), profiles_};
  ViewFilter filter_{"j", &directories_};
  Reader reader_{scratch_ / "views/j"};
};

// A job may create and remove any number of names.
TEST_F(ViewFilterTest, AFilterWithTooManyKeysShadowsAllUntilTheLayerIsRemoved) {
  for (std::size_t i = 0; i <= ViewFilter::kMostKeys; ++i)
    filter_.add("fam/" + std::to_string(i), false);
  for (const char* path : {"fam", "fam/other", "elsewhere/x", "top"})
    EXPECT_TRUE(reader_.may_be_shadowed(path)) << path;
  const auto size = std::filesystem::file_size(scratch_ / "views/j");
  for (std::size_t i = 0; i <= ViewFilter::kMostKeys; ++i)
    filter_.add("more/" + std::to_string(i), false);
  EXPECT_EQ(std::filesystem::file_size(scratch_ / "views/j"), size);
  filter_.clear();
  EXPECT_FALSE(reader_.may_be_shadowed("fam/other"));
  filter_.add("fam/other", false);
  EXPECT_TRUE(reader_.may_be_shadowed("fam/other"));
}

TEST_F(ViewFilterTest, HoldsNamesAndWhatIsBelowThem) {
  EXPECT_FALSE(reader_.may_be_shadowed("fam/K"));
  filter_.add("fam/K", false);
  filter_.add("fam/L", true);
  EXPECT_TRUE(reader_.may_be_shadowed("fam/K"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/K/x"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam"));
  EXPECT_TRUE(reader_.may_be_shadowed("fam/L"));
  EXPECT_TRUE(reader_.may_be_shadowed("fam/L/x/y/z"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/M/L"));
  filter_.add("", true);
  EXPECT_TRUE(reader_.may_be_shadowed("anything"));
}

TEST_F(ViewFilterTest, LeavesOutNamesThatAreNeverAnsweredDirectly) {
  filter_.add("fam/K/tmp.1/x", true);
  EXPECT_FALSE(reader_.may_be_shadowed("fam/K/tmp.1/x"));
}

TEST_F(ViewFilterTest, TheMountAnswersPathsThatAreTooDeep) {
  std::string path = "a";
  for (std::size_t i = 1; i < ShadowProbes::kMostComponents; ++i) path += "/a";
  EXPECT_FALSE(reader_.may_be_shadowed(path));
  EXPECT_TRUE(reader_.may_be_shadowed(path + "/a"));
}

TEST_F(ViewFilterTest, GrowsAndForgetsNothing) {
  constexpr int kNames = 50'000;
  const auto name = [](int i) { return "fam/K" + std::to_string(i); };
  for (int i = 0; i < kNames; ++i) filter_.add(name(i), i % 2 == 0);
  for (int i = 0; i < kNames; ++i) ASSERT_TRUE(reader_.may_be_shadowed(name(i))) << i;
  int falsely = 0;
  for (int i = kNames; i < 2 * kNames; ++i) falsely += reader_.may_be_shadowed(name(i));
  EXPECT_LT(falsely, kNames / 100);
}

TEST_F(ViewFilterTest, EntriesThatAreReadThroughTheMountAreInEveryFilterThatIsOpenedLater) {
  EXPECT_TRUE(directories_.mount_only.add("fam/K"));
  EXPECT_FALSE(directories_.mount_only.add("fam/K"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/K/x"));
  ViewFilter later("later", &directories_);
  later.open(::geteuid(), ::getegid());
  Reader reader(scratch_ / "views/later");
  EXPECT_TRUE(reader.may_be_shadowed("fam/K/x"));
  EXPECT_FALSE(reader.may_be_shadowed("fam/L/x"));
  later.add("fam/L", true);
  later.clear();
  EXPECT_TRUE(reader.may_be_shadowed("fam/K/x"));
  EXPECT_FALSE(reader.may_be_shadowed("fam/L/x"));
}

TEST_F(ViewFilterTest, IsRetiredByItsEndAndByOtherOwners) {
  filter_.add("fam/K", false);
  const Reader before(scratch_ / "views/j");
  EXPECT_TRUE(reader_.may_be_shadowed("fam/K"));
  filter_.set_owner(::geteuid(), ::getegid() + 1);
  EXPECT_TRUE(reader_.may_be_shadowed("fam/K"));
  EXPECT_EQ(reader_.maps(), 2);
  filter_.close();
  EXPECT_TRUE(reader_.may_be_shadowed("fam/other"));
  EXPECT_FALSE(scratch_.exists("views/j"));
  filter_.open(::geteuid(), ::getegid());
  EXPECT_TRUE(reader_.may_be_shadowed("fam/K"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/other"));
  filter_.clear();
  EXPECT_FALSE(reader_.may_be_shadowed("fam/K"));
}

TEST_F(ViewFilterTest, CountsWhatIsWrittenToItsCountersAndRemembersIt) {
  const UniqueFd fd(::open((scratch_ / "counters/j").c_str(), O_RDWR));
  ASSERT_TRUE(fd);
  CounterSlot slots[2] = {{.opens = 3, .lookups = 1}, {.opens = 4, .lookups = 0}};
  ASSERT_EQ(::pwrite(fd.get(), slots, sizeof slots, 0), ssize_t{sizeof slots});
  EXPECT_EQ(filter_.counts().opens, 7U);
  EXPECT_EQ(filter_.counts().lookups, 1U);
  filter_.close();
  EXPECT_EQ(filter_.counts().opens, 7U);
  // If the user truncates the file, the daemon keeps the last counts.
  filter_.open(::geteuid(), ::getegid());
  ASSERT_EQ(::truncate((scratch_ / "counters/j").c_str(), 0), 0);
  EXPECT_EQ(filter_.counts().opens, 7U);
}

// The daemon marks a name as shadowed before it changes the name. So every reader that knows of the change must see the
// mark, even while the filter grows or its owner changes.
TEST_F(ViewFilterTest, NoReaderSeesABitLate) {
  constexpr int kNames = 30'000;
  std::atomic<int> happened{0};
  std::atomic<int> late{0};
  const auto name = [](int i) { return "fam/K" + std::to_string(i); };
  std::vector<std::thread> readers;
  for (int number = 0; number < 3; ++number) {
    readers.emplace_back([&, number] {
      Reader reader(scratch_ / "views/j");
      std::mt19937 random(static_cast<unsigned>(number));
      for (int upto = 0; upto < kNames;) {
        upto = happened.load(std::memory_order_acquire);
        if (upto == 0) continue;
        if (!reader.may_be_shadowed(name(upto - 1))) ++late;
        const int older = static_cast<int>(random() % static_cast<unsigned>(upto));
        if (!reader.may_be_shadowed(name(older))) ++late;
      }
    });
  }
  for (int i = 0; i < kNames; ++i) {
    filter_.add(name(i), false);
    happened.store(i + 1, std::memory_order_release);
    if (i % 5000 == 0) filter_.set_owner(::geteuid(), static_cast<gid_t>(i));
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(late, 0);
}

// An overlay that reports its changes to a shadow filter, as a job's overlay does.
class ShadowTest : public OverlayTest {
 protected:
  struct FilterUpdater final : OverlayObserver {
    explicit FilterUpdater(ShadowTest& test) : test_(test) {}
    void copied_up(const std::string&, const struct stat&) override {}
    void shadows(const std::string& path, bool tree) override {
      const bool is_known = test_.reader_.may_be_shadowed(path);
      test_.filter_.add(path, tree);
      if (!is_known) test_.check_not_begun(path);
    }
    ShadowTest& test_;
  };

  ShadowTest() {
    filter_.open(::geteuid(), ::getegid());
    take_up_layer(observed_overlay_);
  }

  // Verifies that the change of `path` has no visible effect yet: the overlay must report a change
  // before it makes the change.
  void check_not_begun(const std::string& path) {
    if (is_loading_ || path.empty() || directories_.rules.is_mount_only(path)) return;
    EXPECT_FALSE(scratch_.exists("upper/" + path)) << path;
    const std::string directory(parent_path(path));
    EXPECT_FALSE(
        scratch_.exists("upper/" + join_path(directory, ".wh." + std::string(base_name(path)))))
        << path;
  }

  // Starts again with an empty layer over the model's initial base, because the checks detect more errors while the
  // filter is nearly empty.
  void begin_anew() {
    observed_overlay_.set_layer({}, {});
    filter_.clear();
    for (const char* directory : {"upper", "work", "base/fam", "base/plain"}) {
      std::filesystem::remove_all(scratch_ / directory);
    }
    for (const std::string path :
         {"fam/A/x", "fam/A/sub/z", "fam/B/y", "plain/A/x", "plain/B/sub/z"}) {
      scratch_.write("base/" + path, path);
    }
    std::filesystem::create_symlink("x", scratch_ / "base/plain/A/y");
    take_up_layer(observed_overlay_);
  }

  static std::vector<std::string> all_names() {
    std::vector<std::string> all;
    for (const std::string top : {"fam", "plain"}) {
      all.push_back(top);
      for (const std::string key : {"/A", "/B", "/C", "/D"}) {
        all.push_back(top + key);
        for (const std::string name : {"/x", "/y", "/tmp.1", "/sub", "/sub/z"}) {
          all.push_back(top + key + name);
        }
      }
    }
    return all;
  }

  // Makes a change of one of twelve kinds. Returns true if the view's layer has changed.
  bool make_change(unsigned long kind, const std::string& path, const std::string& other) {
    Overlay& overlay = observed_overlay_;
    const auto succeeds = [](const auto& result) { return static_cast<bool>(result); };
    switch (kind) {
      case 0:
        return succeeds(changes::create_file(overlay, path, O_WRONLY, 0644));
      case 1:
        return succeeds(open_writable(overlay, path, O_WRONLY));
      case 2:
        return succeeds(changes::make_dir(overlay, path, 0755));
      case 3:
        return succeeds(changes::make_symlink(overlay, path, "x"));
      case 4:
        return succeeds(changes::remove_file(overlay, path));
      case 5:
        return succeeds(changes::remove_dir(overlay, path));
      case 6:
        return succeeds(changes::rename(overlay, path, other, 0));
      case 7:
        return succeeds(changes::rename(overlay, path, other, RENAME_EXCHANGE));
      case 8:
        return succeeds(changes::link(overlay, path, other));
      case 9:
        return succeeds(copy_up(overlay, path));
      case 10:  // another job publishes
        publish(path);
        return false;
      default:                                                  // the file is evicted, if it exists
        (void)::unlink((scratch_ / ("base/" + path)).c_str());  // fails for a directory
        return false;
    }
  }

  void publish(const std::string& path) const {
    const std::string file = scratch_ / ("base/" + path);
    std::error_code ignored;  // a file may have the name of a parent directory
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
    // Fails if the parent directory does not exist.
    if (random_bit(file)) (void)::mkdir(file.c_str(), 0755);
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
  }
  static bool random_bit(const std::string& text) {
    return std::hash<std::string>{}(text) % 2 == 0;
  }

  // Verifies that `path` is shadowed if its object in the view differs from the base's.
  void check(const std::string& path) {
    const auto shown = observed_overlay_.find(path);
    struct stat base;
    const bool in_base = ::lstat((scratch_ / ("base/" + path)).c_str(), &base) == 0;
    if (!in_base && errno != ENOENT) return;  // the library leaves this name to the mount
    const bool differs = shown ? !in_base || shown->st.st_ino != base.st_ino
                               : in_base || shown.error().code() != ENOENT;
    const bool is_scratch = directories_.rules.is_mount_only(path);
    if (differs && !is_scratch) {
      ASSERT_TRUE(reader_.may_be_shadowed(path)) << path;
      ++differing_;
    } else if (!reader_.may_be_shadowed(path)) {
      ++served_;
      if (shown && S_ISDIR(shown->st.st_mode) && !is_scratch) check_listing(path);
    }
  }

  // Verifies that a directory that is not shadowed has the base's listing.
  void check_listing(const std::string& path) {
    const auto listed = observed_overlay_.list(path);
    ASSERT_TRUE(listed) << path;
    std::set<std::string> names;
    for (const ListedEntry& entry : *listed) names.insert(entry.name);
    std::set<std::string> of_base;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_ / ("base/" + path))) {
      of_base.insert(entry.path().filename());
    }
    ASSERT_EQ(names, of_base) << path;
    ++listed_;
  }

  std::vector<Profile> profiles_ = test_profiles();
  DirectAccess directories_{scratch_.open_dir("views"), scratch_.open_dir("counters"), profiles_};
  ViewFilter filter_{"j", &directories_};
  Reader reader_{scratch_ / "views/j"};
  bool is_loading_ = false;
  int differing_ = 0;
  int served_ = 0;
  int listed_ = 0;
  FilterUpdater tell_{*this};
  Overlay observed_overlay_{std::make_shared<LowerStack>(std::vector{base_.get()}), entries_,
                            counters_, &tell_};
};

TEST_F(ShadowTest, EveryDifferenceFromTheBaseIsReported) {
  std::mt19937 random(5);
  const std::vector<std::string> all = all_names();
  const auto any_name = [&] { return all[random() % all.size()]; };
  int done = 0;
  for (int step = 0; step < 6000; ++step) {
    if (step % 40 == 0) begin_anew();
    const std::string path = any_name();
    const std::string other = any_name();
    done += static_cast<int>(make_change(random() % 12, path, other));
    for (const std::string& any : all) check(any);
    if (HasFatalFailure()) FAIL() << "after step " << step;
  }
  EXPECT_GT(done, 300);
  EXPECT_GT(differing_, 1000);
  EXPECT_GT(served_, 1000);
  EXPECT_GT(listed_, 1000);
}

TEST_F(ShadowTest, ADirectoryWithAHiddenLockFileIsShadowedAndStaysSo) {
  scratch_.write("base/fam/A/x", "base");
  ASSERT_FALSE(reader_.may_be_shadowed("fam/A"));
  hide_lock(observed_overlay_, "fam/A/x.lock");
  EXPECT_TRUE(reader_.may_be_shadowed("fam/A"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/A/x"));
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "plain", 0755));
  filter_.clear(observed_overlay_.locks().hidden.directories());
  EXPECT_TRUE(reader_.may_be_shadowed("fam/A"));
  EXPECT_FALSE(reader_.may_be_shadowed("plain"));
  observed_overlay_.locks().hidden.show("fam/A/x.lock");
  filter_.clear(observed_overlay_.locks().hidden.directories());
  EXPECT_FALSE(reader_.may_be_shadowed("fam/A"));
}

TEST_F(ShadowTest, ALoadedLayerIsReported) {
  scratch_.write("base/fam/A/x", "base");
  scratch_.write("base/fam/A/y", "base");
  scratch_.write("base/plain/A/x", "base");
  ASSERT_TRUE(open_writable(observed_overlay_, "fam/A/x", O_WRONLY));
  ASSERT_TRUE(changes::remove_file(observed_overlay_, "fam/A/y"));
  ASSERT_TRUE(
      changes::create_file(observed_overlay_, "fam/B/x", O_WRONLY, 0644).failed_with(ENOENT));
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "fam/B", 0755));
  ASSERT_TRUE(changes::create_file(observed_overlay_, "fam/B/x", O_WRONLY, 0644));
  filter_.clear();
  EXPECT_FALSE(reader_.may_be_shadowed("fam/A/x"));
  is_loading_ = true;
  take_up_layer(observed_overlay_);
  for (const char* path : {"fam", "fam/A/x", "fam/A/y", "fam/B", "fam/B/x", "fam/B/other"}) {
    EXPECT_TRUE(reader_.may_be_shadowed(path)) << path;
  }
  EXPECT_FALSE(reader_.may_be_shadowed("plain/A/x"));
}

TEST_F(ShadowTest, AnEntryThatTheLayerBeganIsNotMerged) {
  scratch_.write("base/fam/A/x", "base");
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "fam/C", 0755));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/C/y"));  // a directory that is not opaque is merged
  ASSERT_TRUE(changes::create_file(observed_overlay_, "fam/C/x", O_WRONLY, 0644));
  scratch_.write("base/fam/C/y", "of another job");
  EXPECT_TRUE(reader_.may_be_shadowed("fam/C/y"));
  EXPECT_FALSE(reader_.may_be_shadowed("fam/A/x"));
}

TEST_F(ShadowTest, TheMountAnswersForAllNamesOfACopiedFile) {
  scratch_.write("base/plain/A/x", "base");
  std::filesystem::create_hard_link(scratch_ / "base/plain/A/x", scratch_ / "base/plain/A/other");
  EXPECT_FALSE(reader_.may_be_shadowed("plain/A/other"));
  ASSERT_TRUE(open_writable(observed_overlay_, "plain/A/x", O_WRONLY));
  EXPECT_TRUE(reader_.may_be_shadowed("plain/A/other"));
}

TEST_F(ShadowTest, ADirectoryThatItsUserCannotEnterHidesWhatIsBelow) {
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "plain", 0755));
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "plain/open", 0755));
  ASSERT_TRUE(changes::make_dir(observed_overlay_, "plain/closed", 0300));
  EXPECT_FALSE(reader_.may_be_shadowed("plain/open/x"));
  EXPECT_TRUE(reader_.may_be_shadowed("plain/closed/x"));
}

}  // namespace
}  // namespace cacheshim
