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
#include "store/threads/mutex.h"

namespace cacheshim {

class RequestRing;

// The kernel's queue of one core.
struct CoreQueue {
  std::uint16_t core = 0;
  unsigned entries = 0;  // entries of one ring that wait for a request of this core
};

// A buffer for one request and its answer: the kernel writes the request and reads the answer. An
// entry belongs to the kernel from its registration until a request arrives in it, and again from
// its return with the answer until the next request.
class RingEntry {
 public:
  // Returns nullptr if there is no memory.
  static std::unique_ptr<RingEntry> make(RequestRing& ring, CoreQueue& queue);
  ~RingEntry();
  RingEntry(const RingEntry&) = delete;
  RingEntry& operator=(const RingEntry&) = delete;

  // The request in the format of /dev/fuse: its header and the rest, in one piece. The answer may overwrite a request
  // that is too long to be copied (a FUSE_WRITE with its data), but no other request.
  char* bytes() const { return bytes_; }
  std::size_t size() const { return size_; }

  // The id of the unanswered request; 0 if there is none. Thread-safe.
  std::uint64_t unique() const { return unique_.load(std::memory_order_acquire); }
  // Stores the answer in the entry. Call once per request, from any thread.
  void put_answer(const iovec* parts, int count);
  // Call twice for each request: when it has been answered, and when its handler has returned. Until both have
  // happened, the entry gets no other request. The second call returns true: its caller must give the entry back.
  bool release() { return users_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  RequestRing& ring() const { return *ring_; }
  CoreQueue& queue() const { return *queue_; }
  // Returns a buffer of room() bytes for an answer without its header. put_answer() does not copy an answer that was
  // written there.
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
  bool is_spare_ = false;  // registered as a replacement, and not used yet
  std::atomic<std::uint64_t> unique_{0};
  std::atomic<unsigned> users_{0};
};

// The io_uring over which one thread receives and answers the requests of some cores ("FUSE over io_uring",
// Documentation/filesystems/fuse-io-uring.rst, since Linux 6.14; this class uses its names).
//
// The kernel has a queue for each core. It puts a request into an entry of the client's core: the entry that was given
// back last. A ring registers a few entries for each of its queues. If another thread will answer a request later, the
// ring registers another entry in place of the one that the request holds.
//
// A request that finds no free entry waits until an entry is given back; registering a new entry does not end the wait.
// So if all older entries are held by requests that other threads answer later, the next requests wait for one of those
// answers although there are free entries. QueueDrain prevents this.
class RequestRing {
 public:
  // Makes a ring for requests from these cores, with everything that begin() needs. On failure, returns nullptr with
  // the errno of eventfd(2), io_uring_setup(2), madvise(2) or mmap(2). `device` is the session's descriptor; it must
  // stay open as long as the ring exists.
  static std::unique_ptr<RequestRing> make(int device, const std::vector<std::uint16_t>& cores);
  ~RequestRing();
  RequestRing(const RequestRing&) = delete;
  RequestRing& operator=(const RequestRing&) = delete;

  // ---- For the ring's own thread

  // Registers the ring's entries. Call once, after the reply to FUSE_INIT. Returns 0 or an errno value.
  int begin();
  // Sends the answers, waits for requests, and returns those that have arrived. There may be none after wake() or a
  // signal, or if failure() is not 0.
  const std::vector<RingEntry*>& wait();
  // Sends the answers to the kernel now, instead of with the next wait().
  void submit();
  // Call when another thread will answer a request of this queue later. Registers a new entry if the queue would
  // otherwise have too few.
  void note_held(CoreQueue& queue);
  // Gives an answered entry back to the kernel. The entry may come from another ring of the same
  // core; from then on, it belongs to this ring.
  void give_back(RingEntry& entry);

  // ---- For any thread

  // Returns the entry that holds the unanswered request with the id `unique`; nullptr if the ring has none.
  RingEntry* find(std::uint64_t unique);
  bool is_of_this_thread() const { return std::this_thread::get_id() == owner_; }
  // Whether there is a request that wait() has not returned yet.
  bool has_request() const;
  void wake();
  // Returns an errno value if no more requests will come; ENODEV and ENOTCONN mean that the mount is gone. Returns 0 if
  // more may come.
  int failure() const { return failure_; }

 private:
  RequestRing(int device, const std::vector<std::uint16_t>& cores);

  RingEntry* add_entry(CoreQueue& queue);  // nullptr: no memory
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

  UniqueFd call_;  // the eventfd that wake() writes
  std::uint64_t calls_ = 0;

  Mutex mutex_;
  std::vector<std::unique_ptr<RingEntry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
