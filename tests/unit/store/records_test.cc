// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <future>

#include "store/base/store.h"
#include "store/layer/layer.h"
#include "store/layer/layer_index.h"
#include "store/sys/paths.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

std::string refusal_of(const Scratch& scratch) {
  const auto opened = Store::open(scratch.path(), "");
  const auto* error = std::get_if<StoreError>(&opened);
  return error == nullptr ? "" : error->message;
}

TEST(Store, AnExistingDirectoryBecomesAStoreAsItIs) {
  const Scratch scratch;
  scratch.write("triton/K/x", "x");
  EXPECT_EQ(refusal_of(scratch), "");
  EXPECT_EQ(scratch.read("triton/K/x"), "x");
  EXPECT_EQ(scratch.read(".cacheshim/format"), "1\n");
}

TEST(Store, ANewerFormatIsRefusedAndLeftAlone) {
  const Scratch scratch;
  scratch.write(".cacheshim/format", "2\n");
  EXPECT_NE(refusal_of(scratch).find("newer"), std::string::npos);
  EXPECT_EQ(scratch.read(".cacheshim/format"), "2\n");
}

TEST(Store, ADamagedFormatIsRefused) {
  const Scratch scratch;
  scratch.write(".cacheshim/format", "what?");
  EXPECT_NE(refusal_of(scratch).find("damaged"), std::string::npos);
}

TEST(Store, RecordsWhereItIsMounted) {
  const Scratch scratch;
  {
    auto opened = Store::open(scratch.path(), "");
    ASSERT_TRUE(std::get<Store>(opened).record_mount_path("/ci-cache"));
  }
  const auto again = Store::open(scratch.path(), "");
  EXPECT_EQ(std::get<Store>(again).mount_path(), "/ci-cache");
}

TEST(Store, RemovesStagingOfDeadDaemonsOnly) {
  const Scratch scratch;
  const auto living = Store::open(scratch.path(), "");
  scratch.write(".cacheshim/staging/dead-1/owner.lock", "");
  scratch.write(".cacheshim/staging/dead-1/0/tree/x", "half");
  const auto next = Store::open(scratch.path(), "");
  EXPECT_FALSE(scratch.exists(".cacheshim/staging/dead-1"));
  struct stat st {};
  EXPECT_EQ(::fstat(std::get<Store>(living).staging(), &st), 0);
  EXPECT_GT(st.st_nlink, 0U);
}

LayerRecord wanted(const std::string& job) {
  LayerRecord record;
  record.job = job;
  record.cycle = "0";
  record.node = "node1";
  record.uid = 1001;
  return record;
}

TEST(LayerRecord, IsReadBack) {
  LayerRecord record = wanted("j");
  record.shared_uids = true;
  record.shared_by_root = true;
  record.vouched = true;
  record.publish = PublishPolicy::kEnd;
  record.refused = "why";
  record.outcome = Outcome::kFailure;
  const auto read = parse_layer_record(to_json(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->job, "j");
  EXPECT_EQ(read->uid, 1001U);
  EXPECT_TRUE(read->shared_uids && read->shared_by_root && read->vouched);
  EXPECT_EQ(read->publish, PublishPolicy::kEnd);
  EXPECT_EQ(read->refused, "why");
  EXPECT_EQ(read->outcome, Outcome::kFailure);
}

TEST(LayerRecord, TakesMissingAndUnknownFields) {
  const auto record = parse_layer_record(R"({"job": "j", "invented_later": [1]})");
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->active);
  EXPECT_FALSE(record->uid || record->vouched || record->publish);
  EXPECT_FALSE(parse_layer_record("[]"));
  EXPECT_FALSE(parse_layer_record(R"({"job": 7})"));
}

// The fuzzer `records` found that the parser converted numbers such as 1e30 to integers, which is undefined behavior.
TEST(LayerRecord, NumbersThatAreNoIntegersAreRefused) {
  for (const char* number : {"1e30", "-1", "0.5", "18446744073709551615", "true"}) {
    for (const char* key : {"started", "ended", "uid"}) {
      const std::string record = std::string(R"({"job": "j", ")") + key + "\": " + number + "}";
      EXPECT_FALSE(parse_layer_record(record)) << record;
    }
  }
  EXPECT_TRUE(parse_layer_record(R"({"job": "j", "started": 1, "ended": 2, "uid": 4294967295})"));
}

TEST(Layer, IsHeldByOneDaemonAtATime) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  const auto first = Layer::take(layers.get(), wanted("j"));
  const auto second = Layer::take(layers.get(), wanted("j"));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->path(), "j/0@node1");
  EXPECT_EQ(second->path(), "j/0@node1.2");
}

TEST(Layer, IsTakenOverWithItsContents) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  { ASSERT_TRUE(Layer::take(layers.get(), wanted("j"))); }
  scratch.write("layers/j/0@node1/upper/x", "kept");
  EXPECT_TRUE(take_orphans(layers.get(), "another node").empty());
  const auto orphans = take_orphans(layers.get(), "node1");
  ASSERT_EQ(orphans.size(), 1U);
  EXPECT_EQ(orphans[0].record().uid, 1001U);
  EXPECT_EQ(scratch.read("layers/j/0@node1/upper/x"), "kept");
}

// Simulates a daemon that recorded the job's end and died before it moved the directory away.
TEST(Layer, OfAnEndedJobIsNotGivenToAnotherUser) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  LayerRecord ended = wanted("j");
  ended.active = false;
  { ASSERT_TRUE(Layer::take(layers.get(), ended)); }
  LayerRecord others = wanted("j");
  others.uid = 1002;
  const auto layer = Layer::take(layers.get(), others);
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->path(), "j/0@node1.2");
}

TEST(Layer, KeepsTheReasonForNotPublishing) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  LayerRecord vouched = wanted("j");
  vouched.vouched = true;
  const auto take = [&](const LayerRecord& record) {
    return Layer::take(layers.get(), record)->record();
  };
  EXPECT_TRUE(take(vouched).vouched);
  EXPECT_TRUE(take(vouched).vouched);
  EXPECT_FALSE(take(wanted("j")).vouched);  // taken by a daemon that does not check the writers
  EXPECT_FALSE(take(vouched).vouched);
  LayerRecord refused = wanted("j");
  refused.refused = "for a reason";
  EXPECT_EQ(take(refused).refused, "for a reason");
  EXPECT_EQ(take(vouched).refused, "for a reason");
  // Simulates a daemon that recorded the job's end and died before it moved the directory away.
  refused.active = false;
  scratch.write("layers/j/0@node1/meta.json", to_json(refused));
  EXPECT_EQ(take(vouched).refused, "for a reason");
  scratch.write("layers/j/0@node1/meta.json", "damaged");
  // Without a readable record, the layer's owner and writers are unknown. So Layer::take() leaves the layer where it
  // is, and creates a new one beside it.
  EXPECT_EQ(Layer::take(layers.get(), vouched)->path(), "j/0@node1.2");
}

TEST(Layer, IsRemovedAtItsEndOrKeptUntilItIsOld) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  auto gone = Layer::take(layers.get(), wanted("gone"));
  ASSERT_TRUE(gone->end(layers.get(), Outcome::kSuccess, false));
  ASSERT_TRUE(gone->remove(layers.get()));
  EXPECT_FALSE(scratch.exists("layers/gone"));
  {
    auto kept = Layer::take(layers.get(), wanted("kept"));
    ASSERT_TRUE(kept->end(layers.get(), Outcome::kFailure, true));
  }
  EXPECT_FALSE(scratch.exists("layers/kept/0@node1"));
  sweep_ended_layers(layers.get(), 3600);
  EXPECT_TRUE(scratch.exists("layers/kept"));
  EXPECT_TRUE(take_orphans(layers.get(), "node1").empty());
  sweep_ended_layers(layers.get(), -1);
  EXPECT_FALSE(std::filesystem::exists(scratch / "layers/kept") &&
               !std::filesystem::is_empty(scratch / "layers/kept"));
}

// A job may have made any number of files, so its end must not wait until they are removed.
TEST(Layer, TheEndRemovesNoFile) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  {
    auto layer = Layer::take(layers.get(), wanted("j"));
    scratch.write("layers/j/0@node1/upper/directory/file", "x");
    ASSERT_TRUE(layer->end(layers.get(), Outcome::kSuccess, false));
    EXPECT_FALSE(scratch.exists("layers/j/0@node1"));
    EXPECT_EQ(scratch.read("layers/" + layer->path() + "/upper/directory/file"), "x");
    // The job can begin again at once.
    auto next = Layer::take(layers.get(), wanted("j"));
    EXPECT_EQ(next->path(), "j/0@node1");
    EXPECT_TRUE(layer->remove(layers.get(), [] { return false; }).failed_with(ECANCELED));
    EXPECT_TRUE(scratch.exists("layers/" + layer->path() + "/upper/directory/file"));
    // `layer` still holds its owner.lock, so the sweep skips the layer.
    sweep_ended_layers(layers.get(), 3600);
    EXPECT_TRUE(scratch.exists("layers/" + layer->path()));
    ASSERT_TRUE(layer->remove(layers.get()));
    EXPECT_FALSE(scratch.exists("layers/" + layer->path()));
    EXPECT_TRUE(scratch.exists("layers/j/0@node1"));
    ASSERT_TRUE(next->end(layers.get(), Outcome::kSuccess, false));
  }
  // Simulates a daemon that died before the removal. Without a record, nothing says that the layer
  // must be kept, so the next sweep removes it, however new it is.
  sweep_ended_layers(layers.get(), 3600, [] { return false; });
  EXPECT_FALSE(std::filesystem::is_empty(scratch / "layers/j"));
  sweep_ended_layers(layers.get(), 3600);
  EXPECT_FALSE(scratch.exists("layers/j"));
}

TEST(Layer, IsTakenWhileAnotherThreadRemovesTheJobsDirectory) {
  const Scratch scratch;
  const UniqueFd layers = scratch.open_dir("layers");
  for (int round = 0; round < 500; ++round) {
    ASSERT_TRUE(::mkdirat(layers.get(), "j", 0700) == 0 || errno == EEXIST);
    auto removed = std::async(std::launch::async,
                              [&] { return ::unlinkat(layers.get(), "j", AT_REMOVEDIR); });
    auto layer = Layer::take(layers.get(), wanted("j"));
    (void)removed.get();
    ASSERT_TRUE(layer) << "round " << round;
    ASSERT_TRUE(layer->end(layers.get(), Outcome::kSuccess, false));
    ASSERT_TRUE(layer->remove(layers.get()));
  }
}

TEST(LayerIndex, HidesWhatIsBelow) {
  LayerIndex index;
  for (const char* directory : {"a", "c"}) index.add_directory(directory);
  index.add_whiteout("a/b");
  index.add_opaque("c");
  EXPECT_TRUE(index.place_of("a/b").hides_lowers);
  EXPECT_TRUE(index.place_of("a/b/c/d").hides_lowers);
  EXPECT_FALSE(index.place_of("a/bb").hides_lowers);
  EXPECT_TRUE(index.place_of("c/x").hides_lowers);
  EXPECT_TRUE(index.place_of("c/x/y").hides_lowers);
  EXPECT_FALSE(index.place_of("c").hides_lowers);
}

TEST(LayerIndex, FindsWhichNamesTheLayerCanHave) {
  LayerIndex index;
  index.add_directory("a");
  EXPECT_TRUE(index.place_of("x").in_layer);
  EXPECT_TRUE(index.place_of("a/x").in_layer);
  EXPECT_FALSE(index.place_of("a/b/x").in_layer);
  EXPECT_FALSE(index.place_of("b/x").in_layer);
}

TEST(LayerIndex, MovesAllThatIsBelowADirectory) {
  LayerIndex index;
  for (const char* directory : {"a", "a/b", "a/b/deep", "z"}) index.add_directory(directory);
  index.add_whiteout("a/b/x");
  index.add_opaque("a/b");
  index.move_tree("a/b", "z/y");
  EXPECT_FALSE(index.place_of("a/b/x").hides_lowers);
  EXPECT_TRUE(index.has_whiteout("z/y/x"));
  EXPECT_TRUE(index.is_opaque("z/y"));
  EXPECT_TRUE(index.has_directory("z/y/deep"));
  index.erase_tree("z");
  EXPECT_FALSE(index.has_directory("z/y"));
}

TEST(LayerIndex, ExchangesADirectoryWithAFile) {
  LayerIndex index;
  for (const char* directory : {"a", "a/d", "b"}) index.add_directory(directory);
  index.exchange_trees("a/d", "b/file");
  EXPECT_TRUE(index.has_directory("b/file"));
  EXPECT_FALSE(index.has_directory("a/d"));
  index.add_opaque("a");
  index.exchange_trees("a", "b");
  EXPECT_TRUE(index.has_directory("a/file"));
  EXPECT_TRUE(index.is_opaque("b"));
  EXPECT_FALSE(index.is_opaque("a"));
}

TEST(JoinPath, TakesEmptyParts) {
  EXPECT_EQ(join_path("", "x"), "x");
  EXPECT_EQ(join_path("a", ""), "a");
  EXPECT_EQ(join_path("a", "x"), "a/x");
}

}  // namespace
}  // namespace cacheshim
