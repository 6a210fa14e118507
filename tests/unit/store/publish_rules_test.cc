// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <map>
#include <memory>
#include <set>

#include "store/overlay/changes.h"
#include "store/publish/publisher.h"
#include "tests/unit/support/overlay_fixture.h"

// Tests, for each kind of rule, when an entry is complete and which of its files are published.
namespace cacheshim {
namespace {

constexpr const char* kProfile = R"(name = "rules"
evidence = "read"

[[entry]]
path = "moved/*"
complete = ["params"]
renamed = true

[[entry]]
path = "whole/*"
renamed = true

[[entry]]
path = "built/*"
complete = ["*.so"]
renamed = true

[[entry]]
path = "locked/*"
complete = ["*.so"]
built_under = "./*/baton"

[[entry]]
path = "web/*"
files = [".body", ""]
renamed = true

[[entry]]
path = "told/*"
files = ["-data", "-told"]
complete = ["*-told"]

[[entry]]
path = "old/*"
complete = ["group"]
complete_at_end = ["*.json"]

[[entry]]
path = "mute/*"

[class]
scratch = ["tmp*", "*-told"]
lock = ["*.lock"]
baton = ["baton"]
)";

constexpr const char* kTemporary = R"(name = "temporary"
evidence = "read"
mkstemp = true
[[entry]]
path = "*/*"
files = [""]
renamed = true
)";

constexpr const char* kGuess = R"(name = "guess"
evidence = "guess"
[[entry]]
path = "*"
files = [""]
renamed = true
)";

class NoHooks : public PublishHooks {
 public:
  bool is_being_written(dev_t, ino_t) override { return false; }
  bool wait_until_closed(dev_t, ino_t) override { return true; }
  bool note_conflict(const std::string& unit) override { return conflicts.insert(unit).second; }
  bool note_why_unpublished(const std::string& unit, const std::string& reason) override {
    return std::exchange(kept[unit], reason) != reason;
  }
  std::string why_refused() const override { return refused; }
  PublishingJob identity() const override { return {"j1", "2", 20001}; }
  bool has_one_user() const override { return is_private; }
  void published(const std::string& path, const struct stat&) override { order.push_back(path); }
  bool is_private = false;
  std::set<std::string> conflicts;
  std::map<std::string, std::string> kept;
  std::string refused;
  std::vector<std::string> order;
};

class PublishRules : public OverlayTest {
 protected:
  PublishRules() {
    for (const char* text : {kProfile, kTemporary, kGuess}) {
      auto parsed = parse_profile(text, "test.toml");
      if (auto* error = std::get_if<ProfileError>(&parsed)) ADD_FAILURE() << error->message;
      profiles_.push_back(std::get<Profile>(std::move(parsed)));
    }
    auto opened = Store::open(scratch_ / "base", "");
    store_ = std::make_unique<Store>(std::get<Store>(std::move(opened)));
    EXPECT_TRUE(store_->record_mount_path("/ci-cache"));
    publisher_ = std::make_unique<Publisher>(*store_, entries_, counters_);
    make_dir("rules");
  }
  void make_dir(const std::string& path) {
    if (overlay_.find(path)) return;
    if (!parent_path(path).empty()) make_dir(std::string(parent_path(path)));
    ASSERT_TRUE(changes::make_dir(overlay_, path, 0755)) << path;
  }
  void write(const std::string& path, const std::string& text = "x") {
    make_dir(std::string(parent_path(path)));
    put(path, text);
  }
  std::string after(const std::string& path, Arrival arrival) {
    return publisher_->completed_entry(overlay_, path, arrival);
  }
  PublishReport publish(const std::string& unit) {
    return publisher_->publish(overlay_, unit, hooks_);
  }
  PublishReport end(bool success) {
    return publisher_->publish_all(overlay_, hooks_, success, [](auto, auto) {});
  }
  mode_t mode_of(const std::string& path) {
    const auto st = sys::stat_at(store_->base(), path);
    return st ? st->st_mode & 07777 : 0;
  }
  bool base_has(const std::string& path) { return scratch_.exists("base/rules/" + path); }

  std::unique_ptr<Store> store_;
  std::unique_ptr<Publisher> publisher_;
  NoHooks hooks_;
};

TEST_F(PublishRules, DirectoryThatIsRenamedIntoPlaceIsCompleteByItsNames) {
  write("rules/tmp1/lib");
  write("rules/tmp1/.params.tmp7");
  make_dir("rules/moved");
  EXPECT_EQ(after("rules/tmp1/lib", Arrival::kClosed), "");
  ASSERT_TRUE(changes::rename(overlay_, "rules/tmp1", "rules/moved/K", 0));
  EXPECT_EQ(after("rules/moved/K", Arrival::kNamed), "");
  write("rules/tmp2/lib");
  write("rules/tmp2/params");
  ASSERT_TRUE(changes::rename(overlay_, "rules/tmp2", "rules/moved/L", 0));
  EXPECT_EQ(after("rules/moved/L", Arrival::kClosed), "");
  EXPECT_EQ(after("rules/moved/L", Arrival::kNamed), "rules/moved/L");
  EXPECT_EQ(publish("rules/moved/L").files, 2U);
  EXPECT_TRUE(base_has("moved/L/params"));
}

TEST_F(PublishRules, WithoutPatternsOnlyARenameCompletes) {
  write("rules/tmp1/a/b");
  make_dir("rules/whole");
  ASSERT_TRUE(changes::rename(overlay_, "rules/tmp1", "rules/whole/K", 0));
  EXPECT_EQ(after("rules/whole/K/a/b", Arrival::kNamed), "");
  EXPECT_EQ(after("rules/whole/K", Arrival::kNamed), "rules/whole/K");
}

TEST_F(PublishRules, AnEntryIsCompleteOnceItsBatonIsReleased) {
  write("rules/built/K/baton", "");
  write("rules/built/K/x.so");
  EXPECT_EQ(after("rules/built/K/x.so", Arrival::kClosed), "");
  EXPECT_EQ(after("rules/built/K/x.so", Arrival::kNamed), "");
  EXPECT_EQ(end(true).incomplete, 1U);
  write("rules/built/K/log");
  ASSERT_TRUE(changes::remove_file(overlay_, "rules/built/K/baton"));
  EXPECT_EQ(after("rules/built/K/baton", Arrival::kUnlocked), "rules/built/K");
  EXPECT_EQ(after("rules/built/K/log", Arrival::kUnlocked), "");
  // The next builder creates the baton, and finds the entry complete.
  write("rules/built/K/baton", "");
  EXPECT_EQ(publish("rules/built/K").files, 2U);
  EXPECT_FALSE(base_has("built/K/baton"));
  ASSERT_TRUE(changes::remove_file(overlay_, "rules/built/K/baton"));
  EXPECT_EQ(after("rules/built/K/baton", Arrival::kUnlocked), "");
}

TEST_F(PublishRules, EntryIsCompleteAtTheUnlockOfTheBatonThatItIsBuiltUnder) {
  write("rules/locked/K/baton", "");
  write("rules/locked/K/x.o");
  EXPECT_EQ(after("rules/locked/K/x.o", Arrival::kBuilt), "");
  write("rules/locked/K/x.so");
  EXPECT_EQ(after("rules/locked/K/x.so", Arrival::kClosed), "");
  EXPECT_EQ(after("rules/locked/K/x.so", Arrival::kBuilt), "rules/locked/K");
  EXPECT_EQ(publish("rules/locked/K").files, 2U);
  EXPECT_FALSE(base_has("locked/K/baton"));
}

TEST_F(PublishRules, EntryIsCompleteAtTheRemovalOfTheBatonThatItIsBuiltUnder) {
  write("rules/locked/K/baton", "");
  write("rules/locked/K/x.so");
  ASSERT_TRUE(changes::remove_file(overlay_, "rules/locked/K/baton"));
  EXPECT_EQ(after("rules/locked/K/baton", Arrival::kUnlocked), "rules/locked/K");
}

TEST_F(PublishRules, HalfOfABuildUnderALockIsNotPublishedAtTheJobsSuccess) {
  write("rules/locked/K/x.o");
  write("rules/locked/L/x.so");
  EXPECT_EQ(end(true).incomplete, 1U);
  EXPECT_FALSE(base_has("locked/K"));
  EXPECT_TRUE(base_has("locked/L/x.so"));
}

TEST_F(PublishRules, CopiesOfTheBasesFilesAreReplacedByItsEntry) {
  write("rules/locked/K/main.cpp", "source");
  write("rules/locked/K/baton", "");
  scratch_.write("base/rules/locked/K/main.cpp", "source");
  scratch_.write("base/rules/locked/K/x.so", "theirs");
  EXPECT_EQ(get("rules/locked/K/x.so"), "<none>");
  const PublishReport report = publisher_->drop_copies(overlay_, "rules/locked/K", hooks_);
  EXPECT_EQ(report.copies, std::vector<std::string>{"rules/locked/K/main.cpp"});
  EXPECT_EQ(report.entries, 0U);
  EXPECT_EQ(get("rules/locked/K/x.so"), "theirs");
  EXPECT_EQ(names("rules/locked/K"), (Names{"baton", "main.cpp", "x.so"}));
  EXPECT_FALSE(scratch_.exists("upper/rules/locked/K/main.cpp"));
}

TEST_F(PublishRules, FilesThatDifferFromTheBaseStay) {
  write("rules/locked/K/main.cpp", "another source");
  scratch_.write("base/rules/locked/K/main.cpp", "source");
  write("rules/locked/L/main.cpp", "source");
  write("rules/locked/L/x.o", "more");
  scratch_.write("base/rules/locked/L/main.cpp", "source");
  write("rules/locked/M/main.cpp", "source");
  for (const char* entry : {"K", "L", "M"}) {
    const std::string unit = std::string("rules/locked/") + entry;
    EXPECT_TRUE(publisher_->drop_copies(overlay_, unit, hooks_).copies.empty()) << entry;
    EXPECT_TRUE(scratch_.exists("upper/" + unit + "/main.cpp")) << entry;
  }
  EXPECT_FALSE(base_has("locked/L/x.o"));
}

TEST_F(PublishRules, AJobThatMayNotPublishKeepsItsCopies) {
  write("rules/locked/K/main.cpp", "source");
  scratch_.write("base/rules/locked/K/main.cpp", "source");
  hooks_.refused = "another user has written to it";
  EXPECT_TRUE(publisher_->drop_copies(overlay_, "rules/locked/K", hooks_).copies.empty());
  EXPECT_TRUE(scratch_.exists("upper/rules/locked/K/main.cpp"));
}

TEST_F(PublishRules, BatonAloneBeginsNoEntry) {
  write("rules/built/K/baton", "");
  write("rules/built/K/x.lock", "");
  scratch_.write("base/rules/built/K/x.so", "theirs");
  EXPECT_EQ(get("rules/built/K/x.so"), "theirs");
}

TEST_F(PublishRules, FilesOfOneEntryArePublishedTogetherTheFirstNamedLast) {
  write("rules/tmp1");
  write("rules/tmp2", "body");
  make_dir("rules/web");
  ASSERT_TRUE(changes::rename(overlay_, "rules/tmp1", "rules/web/k", 0));
  EXPECT_EQ(after("rules/web/k", Arrival::kNamed), "");
  EXPECT_EQ(end(true).incomplete, 1U);
  ASSERT_TRUE(changes::rename(overlay_, "rules/tmp2", "rules/web/k.body", 0));
  EXPECT_EQ(after("rules/web/k.body", Arrival::kClosed), "");
  ASSERT_EQ(after("rules/web/k.body", Arrival::kNamed), "rules/web/k.body");
  write("rules/web/other");
  EXPECT_EQ(publish("rules/web/k.body").files, 2U);
  EXPECT_EQ(hooks_.order, (Names{"rules/web/k", "rules/web/k.body"}));
  EXPECT_TRUE(base_has("web/k") && base_has("web/k.body"));
  EXPECT_FALSE(base_has("web/other"));
  EXPECT_TRUE(scratch_.exists("upper/rules/web/other"));
  EXPECT_FALSE(scratch_.exists("upper/rules/web/k"));
}

TEST_F(PublishRules, FilesOfOneEntryStayIfOneOfThemDiffers) {
  scratch_.write("base/rules/web/k", "theirs");
  ASSERT_TRUE(changes::remove_file(overlay_, "rules/web/k"));
  write("rules/web/k", "mine");
  write("rules/web/k.body", "body");
  EXPECT_EQ(publish("rules/web/k.body").conflicts, 1U);
  EXPECT_FALSE(base_has("web/k.body"));
  EXPECT_EQ(get("rules/web/k"), "mine");
  EXPECT_EQ(hooks_.conflicts.count("rules/web/k.body"), 1U);
}

TEST_F(PublishRules, ScratchFileMayCompleteAnotherFile) {
  write("rules/told/k-data");
  EXPECT_EQ(after("rules/told/k-data", Arrival::kClosed), "");
  write("rules/told/k-told");
  ASSERT_EQ(after("rules/told/k-told", Arrival::kClosed), "rules/told/k-data");
  EXPECT_EQ(publish("rules/told/k-data").files, 1U);
  EXPECT_TRUE(base_has("told/k-data"));
  EXPECT_FALSE(base_has("told/k-told"));
  EXPECT_EQ(after("rules/told/k-told", Arrival::kClosed), "");  // programs also write this file after a cache hit
  EXPECT_EQ(end(true).incomplete, 0U);
  EXPECT_TRUE(scratch_.exists("upper/rules/told/k-told"));
}

TEST_F(PublishRules, SomeNamesCompleteAtTheEndOnly) {
  write("rules/old/K/k.bin");
  write("rules/old/K/k.json");
  write("rules/old/L/k.bin");
  EXPECT_EQ(after("rules/old/K/k.json", Arrival::kNamed), "");
  const PublishReport report = end(false);
  EXPECT_EQ(report.entries, 1U);
  EXPECT_EQ(report.incomplete, 1U);
  EXPECT_TRUE(base_has("old/K/k.bin"));
}

TEST_F(PublishRules, EntriesOfUnknownCompletenessWaitForTheJobsSuccess) {
  write("rules/mute/K/a/b");
  write("rules/mute/K/x.lock");
  write("rules/loose");
  write("guess/g");
  write("unknown/u");
  EXPECT_EQ(after("rules/mute/K/a/b", Arrival::kNamed), "");
  EXPECT_EQ(after("guess/g", Arrival::kNamed), "");
  EXPECT_EQ(end(false).entries, 0U);
  const PublishReport report = end(true);
  EXPECT_EQ(report.entries, 4U);
  for (const char* path : {"rules/mute/K/a/b", "rules/loose", "guess/g", "unknown/u"}) {
    EXPECT_TRUE(scratch_.exists("base/" + std::string(path))) << path;
  }
  EXPECT_FALSE(base_has("mute/K/x.lock"));
}

TEST_F(PublishRules, FilesOfMkstempAreAsOpenAsTheirDirectory) {
  make_dir("temporary");
  ASSERT_TRUE(changes::make_dir(overlay_, "temporary/open", 0755));
  ASSERT_TRUE(changes::make_dir(overlay_, "temporary/closed", 0700));
  ASSERT_TRUE(changes::make_dir(overlay_, "rules/web", 0755));
  for (const char* path : {"temporary/open/f", "temporary/closed/f", "rules/web/f"}) {
    ASSERT_TRUE(changes::create_file(overlay_, path, O_WRONLY, 0600));
  }
  put("rules/web/f.body", "x");
  EXPECT_EQ(publish("temporary/open/f").files, 1U);
  EXPECT_EQ(publish("temporary/closed/f").files, 0U);
  EXPECT_EQ(publish("rules/web/f.body").files, 0U);
  hooks_.is_private = true;
  EXPECT_EQ(publish("temporary/closed/f").files, 1U);
  EXPECT_EQ(publish("rules/web/f.body").files, 2U);
  EXPECT_EQ(mode_of("temporary/open/f"), 0644U);
  EXPECT_EQ(mode_of("temporary/closed/f"), 0600U);
  EXPECT_EQ(mode_of("rules/web/f"), 0600U);
}

TEST_F(PublishRules, SymlinksLeadIntoTheirOwnCacheByARelativeOrTheRecordedPath) {
  make_dir("rules/whole/K");
  const std::pair<const char*, bool> targets[] = {
      {"down/there", true},         {"/ci-cache/rules/whole/x", true},
      {"/ci-cache/other/x", false}, {"/ci-cache/rules/../other", false},
      {"/ci-cacherules/x", false},  {"../L", true},
      {"../../whole/L", true},      {"../../../other/x", false},
      {"../K/../L", false},         {"down/../../L", false},
      {"..", false},                {"/etc/passwd", false}};
  int number = 0;
  for (const auto& [target, allowed] : targets) {
    const std::string path = "rules/whole/L" + std::to_string(number++);
    make_dir(path);
    ASSERT_TRUE(changes::make_symlink(overlay_, path + "/link", target));
    EXPECT_EQ(publish(path).files, allowed ? 1U : 0U) << target;
  }
}

// The first rule that matches a path applies. The rule "ops/kept/*" does not match "ops/kept"
// itself, but the later rule "ops/*" does, so this directory is an entry that contains entries of
// the first rule. In the other order ("ops/*" before "ops/*/b"), the first rule matches everything
// below its entries, and the later one never applies.
TEST(EntryMap, DirectoriesOfALaterRuleHoldTheEntriesOfAnEarlierOne) {
  const auto parsed = parse_profile(
      "name = \"n\"\nevidence = \"read\"\n[[entry]]\npath = \"ops/kept/*\"\n"
      "[[entry]]\npath = \"ops/*\"\n[[entry]]\npath = \"ops/*/b\"\n",
      "n.toml");
  const std::vector<Profile> profiles{std::get<Profile>(parsed)};
  const EntryMap entries(profiles);
  EXPECT_EQ(entries.find("n/ops/kept/a/file")->unit(), "n/ops/kept/a");
  EXPECT_TRUE(entries.find("n/ops/kept")->is_entry_directory());
  EXPECT_EQ(entries.find("n/ops/x/b/file")->unit(), "n/ops/x");
}

}  // namespace
}  // namespace cacheshim
