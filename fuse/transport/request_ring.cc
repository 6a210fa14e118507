// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/request_ring.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cacheshim {
namespace {

// These structures were added to linux/fuse.h in Linux 6.14.
struct EntryInOut {  // fuse_uring_ent_in_out
  std::uint64_t flags;
  std::uint64_t commit_id;
  std::uint32_t payload_size;
  std::uint32_t padding;
  std::uint64_t reserved;
};
struct CommandRequest {  // fuse_uring_cmd_req, at the beginning of a submission's `cmd`
  std::uint64_t flags;
  std::uint64_t commit_id;
  std::uint16_t queue;
  std::uint8_t padding[6];
};
constexpr unsigned kRegister = 1;           // FUSE_IO_URING_CMD_REGISTER
constexpr unsigned kCommitAndFetch = 2;     // FUSE_IO_URING_CMD_COMMIT_AND_FETCH
constexpr std::size_t kCommandOffset = 48;  // the offset of `cmd` in an io_uring_sqe of 128 bytes
constexpr std::size_t kSubmissionBytes = 128;

// The space for the header, and for a copy of the request in one piece. A request that does not fit is not copied: its
// headers are put immediately before its payload, which the kernel writes to the memory after this space.
constexpr std::size_t kHeadBytes = 8192;
// The largest payload of a request: 256 pages.
std::size_t payload_bytes() {
  static const auto kBytes = static_cast<std::size_t>(256 * ::sysconf(_SC_PAGESIZE));
  return kBytes;
}

// Whether io_uring_enter(2) may succeed when it is repeated after this error.
bool is_passing(int error) {
  return error == EINTR || error == EAGAIN || error == EBUSY || error == ENOMEM;
}

// Entries per queue. One is too few: a client does not wait for the RELEASE of a file, and its next request may follow
// immediately. More than two do harm: while one request takes a long time, the requests in the other entries wait.
constexpr unsigned kEntriesOfQueue = 2;
constexpr unsigned kSubmissions = 16;

// An answer happens before its client's next request, on any core. ThreadSanitizer knows this order
// for read(2) and write(2), but not for io_uring.
#ifdef __SANITIZE_THREAD__
std::atomic<unsigned> seen{0};
void show_what_came_before() { seen.fetch_add(1, std::memory_order_release); }
void see_what_came_before() { (void)seen.load(std::memory_order_acquire); }
#else
void show_what_came_before() {}
void see_what_came_before() {}
#endif

}  // namespace

struct RingEntry::Header {  // fuse_uring_req_header
  char in_out[128];         // fuse_in_header, then fuse_out_header
  char operation[128];      // op_in: the operation's own header
  EntryInOut entry;
};

std::unique_ptr<RingEntry> RingEntry::make(RequestRing& ring, CoreQueue& queue) {
  void* const memory = ::mmap(nullptr, kHeadBytes + payload_bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<RingEntry>(new RingEntry(ring, queue, static_cast<char*>(memory)));
}

RingEntry::RingEntry(RequestRing& ring, CoreQueue& queue, char* memory)
    : ring_(&ring),
      queue_(&queue),
      memory_(memory),
      shared_with_kernel_{{memory, sizeof(Header)}, {memory + kHeadBytes, payload_bytes()}} {}

RingEntry::~RingEntry() { (void)::munmap(memory_, kHeadBytes + payload_bytes()); }

RingEntry::Header& RingEntry::header() const { return *reinterpret_cast<Header*>(memory_); }
char* RingEntry::answer_space() const { return memory_ + kHeadBytes; }
std::size_t RingEntry::room() { return payload_bytes(); }

void RingEntry::take_request() {
  fuse_in_header in;
  std::memcpy(&in, header().in_out, sizeof in);
  const std::size_t payload = header().entry.payload_size;
  const std::size_t operation = in.len - sizeof in - payload;
  const bool is_copied = in.len <= kHeadBytes - sizeof(Header);
  bytes_ = is_copied ? memory_ + sizeof(Header) : answer_space() - operation - sizeof in;
  size_ = in.len;
  std::memcpy(bytes_, &in, sizeof in);
  std::memcpy(bytes_ + sizeof in, header().operation, operation);
  if (is_copied) std::memcpy(bytes_ + sizeof in + operation, answer_space(), payload);
  users_ = 2;
  unique_.store(in.unique, std::memory_order_release);
  see_what_came_before();
}

void RingEntry::put_answer(const iovec* parts, int count) {
  show_what_came_before();
  std::memcpy(header().in_out, parts[0].iov_base, parts[0].iov_len);
  char* end = answer_space();
  for (int i = 1; i < count; ++i) {
    if (parts[i].iov_base != end) std::memcpy(end, parts[i].iov_base, parts[i].iov_len);
    end += parts[i].iov_len;
  }
  header().entry.payload_size = static_cast<std::uint32_t>(end - answer_space());
  unique_.store(0, std::memory_order_release);
}

RequestRing::RequestRing(int device, const std::vector<std::uint16_t>& cores)
    : device_(device), call_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (const std::uint16_t core : cores) queues_.push_back({.core = core});
}

std::unique_ptr<RequestRing> RequestRing::make(int device,
                                               const std::vector<std::uint16_t>& cores) {
  std::unique_ptr<RequestRing> ring(new RequestRing(device, cores));
  if (!ring->call_) return nullptr;
  io_uring_params parameters{};
  // Only one thread uses the ring. The kernel posts completions only while that thread waits, so it does not interrupt
  // the thread.
  parameters.flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                     IORING_SETUP_R_DISABLED;
  const int failed = ::io_uring_queue_init_params(kSubmissions, &ring->ring_, &parameters);
  if (failed != 0) {
    errno = -failed;
    return nullptr;
  }
  ring->is_set_up_ = true;
  // A forked process (own_mount) would keep the ring, and with it /dev/fuse, open after the daemon's death.
  if (const int unforked = ::io_uring_ring_dontfork(&ring->ring_); unforked != 0) {
    errno = -unforked;
    return nullptr;
  }
  for (CoreQueue& queue : ring->queues_) {
    for (unsigned i = 0; i < kEntriesOfQueue; ++i) {
      if (ring->add_entry(queue) == nullptr) return nullptr;
    }
  }
  return ring;
}

RequestRing::~RequestRing() {
  // Destroy the ring first, so that the kernel releases the entries before they are freed.
  if (is_set_up_) ::io_uring_queue_exit(&ring_);
}

RingEntry* RequestRing::add_entry(CoreQueue& queue) {
  auto entry = RingEntry::make(*this, queue);
  if (!entry) return nullptr;
  const MutexLock lock(mutex_);
  return entries_.emplace_back(std::move(entry)).get();
}

int RequestRing::begin() {
  owner_ = std::this_thread::get_id();
  // liburing 2.3 declares io_uring_enable_rings(), but does not export it.
  const auto device = static_cast<unsigned>(ring_.ring_fd);
  const int failed = ::io_uring_register(device, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  if (failed != 0) return -failed;
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : entries_) submit_command(*entry, kRegister);
  }
  listen();
  return 0;
}

io_uring_sqe& RequestRing::next_submission() {
  io_uring_sqe* submission = ::io_uring_get_sqe(&ring_);
  while (submission == nullptr) {
    submit();
    submission = ::io_uring_get_sqe(&ring_);
  }
  std::memset(static_cast<void*>(submission), 0, kSubmissionBytes);
  return *submission;
}

void RequestRing::submit_command(RingEntry& entry, unsigned command) {
  io_uring_sqe& submission = next_submission();
  submission.opcode = IORING_OP_URING_CMD;
  submission.fd = device_;
  submission.cmd_op = command;
  submission.user_data = reinterpret_cast<std::uintptr_t>(&entry);
  CommandRequest request{};
  request.queue = entry.queue_->core;
  if (command == kRegister) {
    submission.addr = reinterpret_cast<std::uintptr_t>(entry.shared_with_kernel_);
    submission.len = 2;
  } else {
    request.commit_id = entry.header().entry.commit_id;
  }
  std::memcpy(reinterpret_cast<char*>(&submission) + kCommandOffset, &request, sizeof request);
  ++entry.queue_->entries;
}

void RequestRing::listen() {
  io_uring_sqe& submission = next_submission();
  ::io_uring_prep_poll_add(&submission, call_.get(), POLLIN);
  submission.user_data = 0;
}

void RequestRing::submit() { (void)::io_uring_submit(&ring_); }

const std::vector<RingEntry*>& RequestRing::wait() {
  requests_.clear();
  const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
  if (submitted < 0 && !is_passing(-submitted)) failure_ = -submitted;
  unsigned head = 0;
  unsigned count = 0;
  io_uring_cqe* completion = nullptr;
  io_uring_for_each_cqe(&ring_, head, completion) {
    ++count;
    take(*completion);
  }
  ::io_uring_cq_advance(&ring_, count);
  return requests_;
}

void RequestRing::take(const io_uring_cqe& completion) {
  if (completion.user_data == 0) {
    (void)!::read(call_.get(), &calls_, sizeof calls_);
    return listen();
  }
  auto* const entry = reinterpret_cast<RingEntry*>(completion.user_data);
  --entry->queue_->entries;
  if (completion.res == -ENOMEM && entry->is_spare_) return;
  if (completion.res < 0) {
    failure_ = -completion.res;
    return;
  }
  entry->is_spare_ = false;
  entry->take_request();
  requests_.push_back(entry);
}

void RequestRing::note_held(CoreQueue& queue) {
  // If the daemon or the kernel has no memory for the entry, one entry fewer receives requests.
  RingEntry* const spare = queue.entries < kEntriesOfQueue ? add_entry(queue) : nullptr;
  if (spare == nullptr) return;
  spare->is_spare_ = true;
  submit_command(*spare, kRegister);
}

CoreQueue& RequestRing::queue_of(std::uint16_t core) {
  return *std::find_if(queues_.begin(), queues_.end(),
                       [core](const CoreQueue& queue) { return queue.core == core; });
}

RingEntry* RequestRing::find(std::uint64_t unique) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [=](const auto& entry) { return entry->unique() == unique; });
  return found == entries_.end() ? nullptr : found->get();
}

void RequestRing::give_back(RingEntry& entry) {
  if (entry.ring_ != this) {
    entry.queue_ = &queue_of(entry.queue_->core);
    entry.ring_ = this;
  }
  submit_command(entry, kCommitAndFetch);
}

bool RequestRing::has_request() const {
  pollfd event{ring_.ring_fd, POLLIN, 0};
  return ::poll(&event, 1, 0) > 0;
}

void RequestRing::wake() {
  const std::uint64_t one = 1;
  (void)!::write(call_.get(), &one, sizeof one);  // fails only if the counter is full
}

}  // namespace cacheshim
