// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/client_core.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "store/sys/process.h"
#include "store/sys/system_calls.h"
#include "store/threads/idle_policy.h"

namespace cacheshim {
namespace {

using std::chrono::seconds;

// The receiver moves to a client's core after this number of consecutive requests from that client. The move takes one
// read of /proc and two system calls.
constexpr unsigned kStreak = 64;
// The receiver leaves the client's core if the client moves to another core more than kMostMoves
// times within kWindow requests. Following the client once takes as long as one round trip between
// two cores.
constexpr unsigned kWindow = 256;
constexpr unsigned kMostMoves = 32;
constexpr seconds kFirstPause{1};
constexpr seconds kLongestPause{64};

constexpr int kProcessorField = 39;  // proc(5), /proc/PID/stat

// Returns -1 if /proc does not show the core.
int core_of(pid_t thread) {
  const auto stat = read_proc(thread, "stat");
  const auto core = stat ? stat_field(*stat, kProcessorField) : std::nullopt;
  return core && *core < CPU_SETSIZE ? static_cast<int>(*core) : -1;
}

cpu_set_t only(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  return cores;
}

}  // namespace

bool go_to_core(int core) {
  if (core < 0) return false;
  const cpu_set_t cores = only(core);
  return ::sched_setaffinity(0, sizeof cores, &cores) == 0;
}

ClientCore::ClientCore() : pause_(kFirstPause) {
  if (::sched_getaffinity(0, sizeof everywhere_, &everywhere_) == -1) return;
  is_possible_ = ::sched_getscheduler(0) == SCHED_OTHER && CPU_COUNT(&everywhere_) > 1 &&
                 may_leave_idle_policy();
}

ClientCore::ClientCore(const ClientCore& anywhere, int core)
    : everywhere_(only(core)),
      is_possible_(anywhere.is_possible_),
      own_core_(core),
      pause_(kFirstPause) {}

// Returns the core on which a guest should serve this client: own_core_ if the receiver is bound to a core, otherwise
// the client's current core.
int ClientCore::place_of(pid_t client) const {
  return own_core_ >= 0 ? own_core_ : core_of(client);
}

void ClientCore::end_stay(Ended how) {
  const pid_t guest = guest_;
  if (guest == 0) return;
  ended_ = how;
  // Neither call can fail unless the thread has exited.
  (void)set_policy(guest, SCHED_OTHER);
  (void)::sched_setaffinity(guest, sizeof everywhere_, &everywhere_);
}

void ClientCore::pause() {
  not_before_ = Clock::now() + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
}

void ClientCore::Guest::note_request(pid_t client) {
  if (client == 0) return;
  if (client != client_) {
    leave();
    client_ = client;
  }
  ++streak_;
  if (is_in_) {
    check_stay();
  } else if (streak_ >= kStreak && core_.is_possible_) {
    enter();
  }
}

void ClientCore::Guest::check_stay() {
  if (const Ended ended = core_.ended_; ended != Ended::kNot) {
    if (ended == Ended::kStopped) core_.pause();
    leave();
  } else if (streak_ % kWindow == 0) {
    moves_ = 0;
    core_.pause_ = kFirstPause;
  }
}

void ClientCore::Guest::enter() {
  streak_ = 0;
  // The exchange fails while another receiver is the guest. After end_stay(), that receiver remains the guest until it
  // leaves.
  pid_t nobody = 0;
  if (!core_.guest_.compare_exchange_strong(nobody, sys::gettid())) return;
  at_ = Clock::now() < core_.not_before_ ? -1 : core_.place_of(client_);
  is_in_ = at_ >= 0;
  if (!is_in_) {
    core_.guest_ = 0;
    return;
  }
  moves_ = 0;
  core_.ended_ = Ended::kNot;
  // go_to_core() fails if the daemon may not run on the client's core.
  if (!go_to_core(at_) || !set_policy(0, SCHED_IDLE)) leave();
}

void ClientCore::Guest::leave() {
  streak_ = 0;
  if (!is_in_) return;
  (void)set_policy(0, SCHED_OTHER);  // neither call can fail: see may_leave_idle_policy()
  (void)::sched_setaffinity(0, sizeof core_.everywhere_, &core_.everywhere_);
  is_in_ = false;
  core_.guest_ = 0;
}

void ClientCore::Guest::follow() {
  if (!is_in_) return;
  const int now = core_.place_of(client_);
  if (now == at_) return;
  at_ = now;
  if (++moves_ <= kMostMoves && go_to_core(now)) return;
  core_.pause();
  leave();
}

}  // namespace cacheshim
