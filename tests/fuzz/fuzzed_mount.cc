// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzzed_mount.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/capability.h>
#include <linux/fuse.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "fuse/dispatch/operations.h"
#include "fuse/transport/handle_request.h"
#include "fuse/transport/request_view.h"
#include "fuse/transport/wire.h"
#include "tests/fuzz/target.h"

// Suppresses libfuse's leaks: libfuse keeps an interrupt whose request is not pending, and does not free it at the end.
// libfuse also leaks requests without a reply; ReplySink detects these.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfuse3.so"; }

namespace cacheshim::fuzz {

// Accepts every reply. A second reply to a request is a finding, and so is a reply that is still missing at the end.
class ReplySink final : public RequestSource {
 public:
  void start() override {}
  void stop() override {}
  std::optional<ssize_t> reply(const iovec* parts, int count) override {
    note(parts[0].iov_base, parts[0].iov_len);
    std::size_t size = 0;
    for (int part = 0; part < count; ++part) size += parts[part].iov_len;
    return static_cast<ssize_t>(size);
  }
  void note(const void* bytes, std::size_t size) {
    fuse_out_header header{};
    if (size < sizeof header) return;
    std::memcpy(&header, bytes, sizeof header);
    if (header.unique == 0) return;  // a notification
    const std::lock_guard lock(mutex_);
    require(answered_.insert(header.unique).second);
  }
  void expect(std::uint64_t number) { expected_.push_back(number); }
  void require_complete() {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t number : expected_) require(answered_.contains(number));
  }

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> answered_;
  std::vector<std::uint64_t> expected_;
};

namespace {

constexpr std::uint64_t kNumberStep = 2;  // as in the kernel: the lowest bit marks interrupts
constexpr rlim_t kMostFileBytes = rlim_t{16} << 20;
constexpr std::uint64_t kMostOfUser = 12;           // a user's limit for each countable resource
constexpr std::uint64_t kMostLayerBytes = 1 << 18;  // a user's limit for the size of all layers

ReplySink* sink = nullptr;

ssize_t read_nothing(int, void*, std::size_t, void*) { return 0; }

// Reads the reply from libfuse's pipe.
ssize_t take_spliced(int from, off_t*, int, off_t*, std::size_t length, unsigned, void*) {
  std::string bytes(length, '\0');
  const ssize_t got = ::read(from, bytes.data(), length);
  if (got > 0) sink->note(bytes.data(), static_cast<std::size_t>(got));
  return got;
}

// Returns a session that owns `device`.
fuse_session* make_session(const RequestHandler& handler, int device) {
  std::string program = "fuzzer";
  char* argv[] = {program.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, argv);
  fuse_session* const session =
      fuse_session_new(&args, &handler.operations, sizeof(fuse_lowlevel_ops), handler.userdata);
  fuse_opt_free_args(&args);
  fuse_custom_io io{};
  io.writev = wire::send;
  io.read = read_nothing;
  io.splice_send = take_spliced;
  require(session != nullptr && fuse_session_custom_io(session, &io, device) == 0);
  return session;
}

std::string init_message() {
  fuse_init_in body{};
  body.major = FUSE_KERNEL_VERSION;
  body.minor = FUSE_KERNEL_MINOR_VERSION;
  body.flags = FUSE_ASYNC_READ | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_ATOMIC_O_TRUNC |
               FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES;
  fuse_in_header header{};
  header.len = sizeof header + sizeof body;
  header.opcode = FUSE_INIT;
  std::string message(sizeof header + sizeof body, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, &body, sizeof body);
  return message;
}

// Returns one family, "fam". Each directory in it is an entry, which is complete once it contains a file "done-*".
std::vector<Profile> fuzzed_profiles() {
  const auto parsed = parse_profile(
      "name = 'fam'\ndefault_paths = ['~/fam']\nevidence = 'run'\n[[entry]]\npath = '*'\ncomplete = ['done-*']\n"
      "paths_in = ['done-*']\n[class]\nscratch = ['tmp.*']\nbaton = ['baton']\nlock = ['*.lock']\n",
      "fam.toml");
  const auto* const profile = std::get_if<Profile>(&parsed);
  require(profile != nullptr);
  return {*profile};
}

Store make_store(const Scratch& scratch) {
  scratch.write("store/fam/KEY/done-1", "text");
  scratch.write("store/fam/file", "text");
  return std::get<Store>(Store::open(scratch / "store", ""));
}

// Returns limits that are small enough for an input to reach each of them.
LimitValues fuzzed_limits() {
  LimitValues limits{};
  for (std::size_t row = 0; row < limits.size(); ++row) {
    limits[row] = kLimitRows[row].is_size() ? kMostLayerBytes : kMostOfUser;
  }
  return limits;
}

MountOptions fuzzed_options(const Scratch& scratch) {
  return {.mount_point = "/nowhere",
          .layers_dir = scratch / "store/.cacheshim/layers",
          .store_dir = scratch / "store",
          .run_dir = "",
          .routes = "",
          .publish = PublishPolicy::kComplete,
          .watch = WatchMode::kNone,
          .job_idle = std::chrono::hours(1),
          .layer_keep = std::chrono::hours(1),
          .flight_timeout = std::chrono::seconds(0),
          .owners = {},
          .cycle = "",
          .gc = {},
          .gc_interval = std::chrono::hours(1),
          .allow = {},
          .verify_on_open = false,
          .limits = fuzzed_limits()};
}

}  // namespace

void confine() {
  spdlog::set_level(spdlog::level::off);
  (void)::umask(0);
  const rlimit limit{kMostFileBytes, kMostFileBytes};
  (void)::setrlimit(RLIMIT_FSIZE, &limit);
  (void)::signal(SIGXFSZ, SIG_IGN);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  data[0].effective = data[0].permitted = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE |
                                          1U << CAP_DAC_READ_SEARCH | 1U << CAP_FOWNER |
                                          1U << CAP_FSETID;
  // Fails for users other than root, who have no capabilities.
  (void)::syscall(SYS_capset, &header, data);
}

FuzzedMount::FuzzedMount()
    : profiles_(fuzzed_profiles()),
      store_(make_store(scratch_)),
      mount_(store_, profiles_, fuzzed_options(scratch_)) {
  auto replies = std::make_unique<ReplySink>();
  sink = replies.get();
  sources_.push_back(std::move(replies));
  const int device = ::open("/dev/null", O_RDWR | O_CLOEXEC);  // receives the notifications
  session_ = make_session(request_handler(filesystem_), device);
  wire::use_sources(sources_);
  mount_.start(device, [this](const Baton& baton) { filesystem_.names.reap(baton); });
  deliver(init_message());
}

void FuzzedMount::finish() {
  mount_.fail_waits();
  mount_.finish_tasks();
}

FuzzedMount::~FuzzedMount() {
  finish();
  mount_.stop();
  sink->require_complete();
  wire::use_sources({});
  fuse_session_destroy(session_);
  sink = nullptr;
}

void FuzzedMount::deliver(std::string message) {
  fuse_in_header header{};
  // ReceiveLoop also drops messages without a whole header.
  if (message.size() < sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.opcode != FUSE_INTERRUPT) header.unique = last_ += kNumberStep;
  // Makes this process the caller, so that the daemon reads no other process's files in /proc.
  if (header.pid != 0) header.pid = static_cast<std::uint32_t>(::getpid());
  std::memcpy(message.data(), &header, sizeof header);
  const RequestView request(message.data(), message.size());
  const bool is_known = header.opcode != FUSE_NOTIFY_REPLY;  // libfuse drops a reply that it has not requested
  if (is_known && request.expects_reply()) sink->expect(header.unique);
  handle_request(session_, request);
  wire::begin_request(nullptr);  // `message` is about to be destroyed
}

}  // namespace cacheshim::fuzz
