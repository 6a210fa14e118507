// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "fuse/transport/request_trace.h"
#include "learn/cache_facts.h"
#include "learn/entry_groups.h"
#include "learn/name_shapes.h"
#include "learn/profile_text.h"
#include "learn/request_decoder.h"
#include "store/profiles/profile.h"

// Tests the profiles that `cacheshim profile learn` derives from a program's calls.
namespace cacheshim::learn {
namespace {

using Op = FileEvent::Op;

constexpr pid_t kThread = 4711;
const std::string kKey = "ABCDEFGH234567ABCDEFGH234567ABCDEFGH234567ABCDEFGH";
const std::string kOther = "ZYXWVUTS765432ZYXWVUTS765432ZYXWVUTS765432ZYXWVUTS";
const std::string kUuid = "9d1b7b0a-3c1e-4a51-8f0c-0123456789ab";

// Builds the pattern at run time, because compilers warn about the trigraph "??-" in a literal.
std::string pattern_of_uuid() {
  std::string pattern = kUuid;
  for (char& c : pattern) c = c == '-' ? '-' : '?';
  return pattern;
}

class Program {
 public:
  std::vector<FileEvent> events;

  void miss(const std::string& path) {
    events.push_back({.op = Op::kLookup, .thread = kThread, .path = path, .error = ENOENT});
  }
  void make(const std::string& path) { add(Op::kMakeDir, path); }
  void create(const std::string& path, bool is_exclusive = false) {
    events.push_back({.op = Op::kCreate,
                      .thread = kThread,
                      .path = path,
                      .writes = true,
                      .is_exclusive = is_exclusive});
  }
  void open(const std::string& path, bool writes) {
    events.push_back({.op = Op::kOpen, .thread = kThread, .path = path, .writes = writes});
  }
  void rename(const std::string& from, const std::string& to) {
    miss(to);  // the kernel looks up the new name first
    events.push_back({.op = Op::kRename, .thread = kThread, .path = from, .to = to});
  }
  void remove(const std::string& path) { add(Op::kUnlink, path); }
  void remove_dir(const std::string& path) { add(Op::kRmdir, path); }
  void lock(const std::string& path) { add(Op::kLock, path); }

 private:
  void add(Op op, const std::string& path) {
    events.push_back({.op = op, .thread = kThread, .path = path});
  }
};

CacheFacts facts_of(const Program& program, const std::string& text = "") {
  Evidence evidence{.first = program.events, .second = {}, .read = {}, .directory = "/cache"};
  evidence.read = [&](const std::string&) { return Evidence::Content{.mode = 0644, .text = text}; };
  return find_facts(evidence);
}

std::vector<std::string> patterns(const std::vector<Observed>& observed) {
  std::vector<std::string> result;
  for (const Observed& one : observed) result.push_back(one.pattern);
  return result;
}

using Texts = std::vector<std::string>;

void put_like_triton(Program& program, const std::string& key, const Texts& names) {
  program.miss(key + "/__grp__k.json");
  program.make(key);
  program.miss(key + "/__grp__k.json");
  for (const std::string& name : names) {
    const std::string temporary = key + "/tmp.pid_4711_" + kUuid;
    program.make(temporary);
    program.create(temporary + '/' + name);
    program.rename(temporary + '/' + name, key + '/' + name);
    program.remove_dir(temporary);
  }
}

TEST(Learn, TritonsDirectoriesAreCompleteWithTheirGroup) {
  Program program;
  put_like_triton(program, kKey, {"k.ttir", "k.cubin", "__grp__k.json"});
  put_like_triton(program, kOther, {"launcher.so"});
  const CacheFacts facts = facts_of(program, "{\"k.cubin\": \"/cache/X/k.cubin\"}");
  ASSERT_EQ(facts.entries.size(), 1U);
  const EntryFacts& entry = facts.entries.front();
  EXPECT_EQ(entry.path, "*");
  EXPECT_EQ(entry.endings, Texts());
  EXPECT_TRUE(entry.is_renamed);
  EXPECT_EQ(patterns(entry.complete), Texts{"__grp__k.json"});
  EXPECT_EQ(patterns(entry.complete_single), Texts{"launcher.so"});
  EXPECT_EQ(patterns(entry.paths_in), Texts{"__grp__k.json"});
  EXPECT_EQ(patterns(entry.flight), Texts{"__grp__k.json"});
  EXPECT_EQ(patterns(facts.scratch), Texts{"tmp.pid_*_" + pattern_of_uuid()});
}

TEST(Learn, ARenamedDirectoryIsAnEntry) {
  Program program;
  program.make("cache");
  program.make("tmp");
  for (const std::string& name : Texts{"kernel.one.abc", "kernel.two.def"}) {
    program.make("tmp/" + kUuid);
    program.create("tmp/" + kUuid + "/kernel.cubin");
    program.rename("tmp/" + kUuid, "cache/" + name);
  }
  const CacheFacts facts = facts_of(program);
  ASSERT_EQ(facts.entries.size(), 1U);
  EXPECT_EQ(facts.entries.front().path, "cache/*");
  EXPECT_TRUE(facts.entries.front().is_renamed);
  EXPECT_EQ(facts.entries.front().complete.size(), 0U);
  EXPECT_EQ(patterns(facts.scratch), Texts{pattern_of_uuid()});
}

TEST(Learn, FilesThatShareAKeyAreOneEntryTheLastOneFirst) {
  Program program;
  const std::string key = "http-v2/6/8/687a0abc687a0abc687a0abc";
  for (const std::string& ending : Texts{"", ".body", ".meta"}) {
    program.create(key + ending + "x1y2z3.tmp", true);
    program.rename(key + ending + "x1y2z3.tmp", key + ending);
  }
  const CacheFacts facts = facts_of(program);
  ASSERT_EQ(facts.entries.size(), 1U);
  EXPECT_EQ(facts.entries.front().path, "http-v2/?/?/*");
  EXPECT_EQ(facts.entries.front().endings, (Texts{".meta", ".body", ""}));
}

TEST(Learn, ADirectoryAroundEntriesIsNoEntry) {
  Program program;
  for (const std::string& level : Texts{"0", "4"}) {
    program.create(level + "/stats");
    program.create(level + "/1/c51g6nvb8s6p0ehp1uhongnhtjoseo8M");
  }
  const CacheFacts facts = facts_of(program);
  ASSERT_EQ(facts.entries.size(), 1U);
  EXPECT_EQ(facts.entries.front().path, "?/?/*");
  ASSERT_EQ(facts.notes.size(), 1U);
  EXPECT_TRUE(facts.notes.front().ends_with("0/stats, 4/stats")) << facts.notes.front();
}

TEST(Learn, RulesForDeeperPathsComeFirst) {
  Program program;
  program.create("kernels/" + kKey + "/kernel.so");
  program.create(kOther + "/kernel.so");
  const CacheFacts facts = facts_of(program);
  ASSERT_EQ(facts.entries.size(), 2U);
  EXPECT_EQ(facts.entries.front().path, "kernels/*");
}

TEST(Learn, AFileWrittenInPlaceWaitsForTheJobsSuccess) {
  Program program;
  program.make(kKey);
  program.create(kKey + "/kernel.so");
  const CacheFacts facts = facts_of(program);
  ASSERT_EQ(facts.entries.size(), 1U);
  EXPECT_FALSE(facts.entries.front().is_renamed);
  EXPECT_EQ(facts.entries.front().complete.size(), 0U);
  EXPECT_EQ(facts.entries.front().notes.size(), 1U);
}

TEST(Learn, LocksAndBatonsAreDistinguishedFromFiles) {
  Program program;
  program.create("one.lock");
  program.lock("one.lock");
  program.create("two.lock");
  program.lock("two.lock");
  program.create("build_lock", true);
  program.remove("build_lock");
  program.create("index.json");
  program.open("index.json", false);
  program.open("index.json", true);
  const CacheFacts facts = facts_of(program);
  EXPECT_EQ(patterns(facts.locks), Texts{"*.lock"});
  EXPECT_EQ(patterns(facts.batons), Texts{"build_lock"});
  EXPECT_EQ(patterns(facts.scratch), Texts());
  ASSERT_EQ(facts.notes.size(), 1U);
  EXPECT_TRUE(facts.notes.front().starts_with("Read and written again") &&
              facts.notes.front().ends_with("index.json"));
}

TEST(Learn, ALookupByTheKernelItselfIsNoMiss) {
  Program program;
  program.make(kKey);
  program.create(kKey + "/a.tmp");
  program.rename(kKey + "/a.tmp", kKey + "/a");
  EXPECT_EQ(facts_of(program).entries.front().flight.size(), 0U);
}

TEST(Learn, RandomPartsOfTemporaryNamesAreLeftOpen) {
  const std::set<pid_t> threads{77};
  const auto shape = [&](const std::string& name, const std::string& final_name = "") {
    return shape_of({name, final_name}, threads);
  };
  EXPECT_EQ(shape("tmpab_12cd3"), "tmp????????");
  EXPECT_EQ(shape(".tmpAb3dEf"), ".tmp??????");
  EXPECT_EQ(shape("abcR.tmp.Ab3dEf", "abcR"), "*.tmp.??????");
  EXPECT_EQ(shape("cpp_stdout.tmp.TqgcDF.i"), "cpp_stdout.tmp.??????.i");
  EXPECT_EQ(shape("0a1bx9_kq2zw.tmp", "0a1b"), "*????????.tmp");
  EXPECT_EQ(shape("a.77.x"), "a.*.x");
  EXPECT_EQ(shape("model.tmp.12345", "model"), "*.tmp.*");
  EXPECT_EQ(shape("result.kernel"), "result.kernel");
  EXPECT_EQ(shape("x.0123456789abcdef.tmp"), "x.????????????????.tmp");
  EXPECT_EQ(shapes_of({{"kernel_aa.part", ""}, {"kernel_zq.part", ""}}, {}),
            Texts{"kernel_??.part"});
}

TEST(Learn, NamesHaveInCommonWholeWordsOnly) {
  EXPECT_EQ(common_pattern({"__grp__a.json", "__grp__b.json"}), "__grp__*.json");
  EXPECT_EQ(common_pattern({"one.so", "other.so"}), "*.so");
  EXPECT_EQ(common_pattern({"a_one.so", "a_other.so"}), "a_*.so");
  EXPECT_EQ(common_pattern({"meta.json"}), "meta.json");
  EXPECT_EQ(common_pattern({"0123456789abcdef.json"}), "*.json");
  EXPECT_EQ(common_pattern({"one", "other"}), std::nullopt);
  EXPECT_EQ(common_pattern({"a[1]"}), "a\\[1]");
}

// Adds to the trace a MKDIR request and its reply, as the kernel and the daemon write them.
void add_mkdir(RequestTrace& trace, std::uint64_t number, const std::string& name) {
  fuse_in_header in{};
  in.len = static_cast<std::uint32_t>(sizeof in + sizeof(fuse_mkdir_in) + name.size() + 1);
  in.opcode = FUSE_MKDIR;
  in.unique = number;
  in.nodeid = FUSE_ROOT_ID;
  std::string request(in.len, '\0');
  std::memcpy(request.data(), &in, sizeof in);
  std::memcpy(request.data() + sizeof in + sizeof(fuse_mkdir_in), name.data(), name.size());
  trace.add_request(request.data());
  fuse_entry_out entry{};
  entry.nodeid = FUSE_ROOT_ID + number;
  fuse_out_header out{.len = sizeof out + sizeof entry, .error = 0, .unique = number};
  const iovec parts[] = {{&out, sizeof out}, {&entry, sizeof entry}};
  trace.add_reply(parts, 2);
}

TEST(Learn, ATraceKeepsWhatFitsAndReportsThatItIsFull) {
  const auto trace = RequestTrace::make();
  ASSERT_NE(trace, nullptr);
  add_mkdir(*trace, 1, "first");
  const auto events = decode_requests(trace->records());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events.front().path, "first");
  EXPECT_EQ(events.front().error, 0);
  EXPECT_FALSE(trace->is_full());
  const std::string name(255, 'x');
  for (std::uint64_t number = 2; number < RequestTrace::kBytes / name.size(); ++number)
    add_mkdir(*trace, number, name);
  EXPECT_TRUE(trace->is_full());
  EXPECT_EQ(decode_requests(trace->records()).front().path, "first");
}

// Programs may use any bytes in names.
TEST(Learn, OddNamesMakeAProfileThatCanBeRead) {
  Program program;
  program.make("a\"\\\n[");
  for (const std::string& name : Texts{"x\ny.lock", "\"q\".lock", "*.lock"}) {
    program.create(name);
    program.lock(name);
  }
  program.create("a\"\\\n[/" + kKey);
  program.create(std::string(250, 'x') + ' ' + std::string(250, 'y'));
  const std::string text = profile_text(
      {.name = "n", .variable = "", .default_path = "", .command = "x\ny = 1", .notes = {}},
      facts_of(program));
  const auto parsed = parse_profile(text, "learned.toml");
  ASSERT_TRUE(std::holds_alternative<Profile>(parsed))
      << std::get<ProfileError>(parsed).message << '\n'
      << text;
  EXPECT_EQ(std::get<Profile>(parsed).evidence, cacheshim::Evidence::kGuess);
}

}  // namespace
}  // namespace cacheshim::learn
