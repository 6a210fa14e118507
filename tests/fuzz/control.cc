// SPDX-License-Identifier: Apache-2.0
// Fuzzes requests to the control file. Each line of the input is a request, and its first byte selects the caller.
#include "fuse/control/control_session.h"
#include "tests/fuzz/fuzzed_mount.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

constexpr int kMostRequests = 16;
constexpr uid_t kUser = 1000;

struct Reader {
  std::size_t bytes = 0;
};

void take(void* request, const Result<std::string_view>& result) {
  if (!result) return;
  static_cast<Reader*>(request)->bytes = result->size();
  touch(*result);
}

void read_all(ControlSession& session) {
  static constexpr Completion<Result<std::string_view>>::Replier kReplier{take};
  while (session.has_unread_answer()) {
    Reader reader;
    session.read(Completion<Result<std::string_view>>(&reader, kReplier), 4096);
    if (reader.bytes == 0) return;
  }
}

void run(std::string_view input) {
  std::vector<std::shared_ptr<ControlSession>> sessions;
  FuzzedMount mount;
  const Caller user{kUser, kUser, 0};
  const auto job = mount.mount().jobs.ensure_active(
      "one", {JobId::from_text("one"), JobId::from_text("0"), std::nullopt},
      mount.mount().limits.account(kUser));
  require(bool{job});
  (void)(*job)->views.enter(user);
  for (int count = 0; !input.empty() && count < kMostRequests; ++count) {
    const std::string line = take_until(input, '\n');
    if (line.empty()) continue;
    const Caller caller = line[0] == 'r' ? Caller{0, 0, 0} : line[0] == 'o' ? Caller{7, 7, 0} : user;
    sessions.push_back(std::make_shared<ControlSession>());
    (void)mount.control().submit(sessions.back(), caller, std::string_view(line).substr(1));
  }
  mount.finish();
  for (const auto& session : sessions) read_all(*session);
  for (const auto& session : sessions) session->close();
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  [[maybe_unused]] static const bool is_confined = (cacheshim::fuzz::confine(), true);
  cacheshim::fuzz::run(cacheshim::fuzz::text_of(data, size));
  return 0;
}
