// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "store/sys/mutex.h"

namespace cacheshim {

class RequestRing;

// The kernel's, of one core.
struct CoreQueue {
  std::uint16_t core = 0;
  unsigned entries = 0;  // of one ring, that wait for a request there
};

// A place for one request and its answer, which the kernel fills and reads. It is the kernel's from
// when it is registered or given back with an answer, until a request comes in it.
class RingEntry {
 public:
  // Nothing where there is no memory.
  static std::unique_ptr<RingEntry> make(RequestRing& ring, CoreQueue& queue);
  ~RingEntry();
  RingEntry(const RingEntry&) = delete;
  RingEntry& operator=(const RingEntry&) = delete;

  // The request as /dev/fuse would give it: its header and what follows, in one piece. Stays as it is
  // when it is answered, but for one that is too long for a copy (a FUSE_WRITE's data).
  char* bytes() const { return bytes_; }
  std::size_t size() const { return size_; }

  // Of the request that is not answered yet; 0 if there is none. Any thread may ask.
  std::uint64_t unique() const { return unique_.load(std::memory_order_acquire); }
  // Any thread may put the answer there, once.
  void put_answer(const iovec* parts, int count);
  // To be called twice for each request: when it has been answered, and when who handles it has returned,
  // so that it stays as it is for both. True for the one who comes last and gives the entry back.
  bool release() { return users_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  RequestRing& ring() const { return *ring_; }
  CoreQueue& queue() const { return *queue_; }
  // Where an answer may be made, after its header, so that it is not copied: room() bytes.
  char* answer_space() const;
  static std::size_t room();

 private:
  friend class RequestRing;
  struct Header;

  RingEntry(RequestRing& ring, CoreQueue& queue, char* memory);
  Header& header() const;
  void take_request();

  RequestRing* ring_;
  CoreQueue* queue_;
  char* const memory_;
  iovec shared_with_kernel_[2];
  char* bytes_ = nullptr;
  std::size_t size_ = 0;
  bool is_spare_ = false;  // registered for want of others, and not used yet
  std::atomic<std::uint64_t> unique_{0};
  std::atomic<unsigned> users_{0};
};

// The io_uring by which one thread takes the requests that are made on some cores, and answers them
// ("FUSE over io_uring", Documentation/filesystems/fuse-io-uring.rst, since Linux 6.14; names as there).
//
// The kernel has a queue for each core, and hands a request to the entry that was given back last among
// those registered for the queue of the core that it is made on. A ring registers a few for each of its
// queues. While a request is answered later, by another thread, the ring registers one more in its stead.
//
// A request that finds no entry waits, and gets one that is given back, but none that is registered
// meanwhile. So if all entries that there were are of requests that are answered later, what came after
// them waits for one of those, though there are entries: QueueDrain sees to that.
class RequestRing {
 public:
  // For requests from these cores. Sets up all that begin() needs; nullptr, with errno of
  // io_uring_setup(2) or mmap(2), if that cannot be. `device` is the session's, and must outlive it.
  static std::unique_ptr<RequestRing> make(int device, const std::vector<std::uint16_t>& cores);
  ~RequestRing();
  RequestRing(const RequestRing&) = delete;
  RequestRing& operator=(const RequestRing&) = delete;

  // ---- For the one thread that it is of

  // Registers its entries, once FUSE_INIT has been answered. 0, or an error number.
  int begin();
  // Sends off what has been answered, waits, and gives the requests that came: none if somebody
  // called wake(), and once failure() is not 0.
  const std::vector<RingEntry*>& wait();
  // What has been answered goes to the kernel at once, and not with the next wait().
  void submit();
  // A request of this queue is answered later, by another thread.
  void note_held(CoreQueue& queue);
  // It has been answered, and the kernel is to have it. It may be of another ring of the same core, and
  // belongs to this one from then on.
  void give_back(RingEntry& entry);

  // ---- For any thread

  // The entry whose request is to be answered; nullptr if it is of another ring.
  RingEntry* find(std::uint64_t unique);
  bool is_of_this_thread() const { return std::this_thread::get_id() == owner_; }
  // Whether there is a request that wait() has not given yet.
  bool has_request() const;
  void wake();
  // Why there are no more requests: an error number, of which ENODEV and ENOTCONN say that the kernel
  // has unmounted. 0: there may be.
  int failure() const { return failure_; }

 private:
  RequestRing(int device, const std::vector<std::uint16_t>& cores);

  RingEntry* add_entry(CoreQueue& queue);  // nullptr where there is no memory
  io_uring_sqe& next_submission();
  void submit_command(RingEntry& entry, unsigned command);
  void listen();
  CoreQueue& queue_of(std::uint16_t core);
  void take(const io_uring_cqe& completion);

  const int device_;
  std::vector<CoreQueue> queues_;
  io_uring ring_{};
  bool is_set_up_ = false;
  std::atomic<std::thread::id> owner_;
  std::vector<RingEntry*> requests_;
  std::atomic<int> failure_{0};

  UniqueFd call_;  // an eventfd: wake()
  std::uint64_t calls_ = 0;

  Mutex mutex_;
  std::vector<std::unique_ptr<RingEntry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
