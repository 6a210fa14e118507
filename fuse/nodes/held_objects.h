// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/limits/user_limits.h"

namespace cacheshim {

// A descriptor that a node will hold, and the charge for it. No user is charged for the descriptor of a common file.
struct ChargedFd {
  UniqueFd fd;
  Charge charge;
};

using SharedFd = std::shared_ptr<const UniqueFd>;

// A node's descriptor, or none. Must not move in memory while it is in the list of common files.
struct HeldObject {
  SharedFd fd;
  Charge charge;
  // Its position in the list of common files, if it is in this list.
  std::optional<std::list<HeldObject*>::iterator> place;
};

// The O_PATH descriptors that nodes hold of their objects.
//
// The node of a common file holds a descriptor from the file's lookup on. The kernel keeps such nodes long after their
// files are closed. Therefore, once nodes hold more than kMostHeld such descriptors, the descriptor of the least
// recently looked-up file is released. The descriptor of an object without a name stays until the object gets a name,
// or its node is freed.
//
// The caller closes the released descriptors after it has released the table's lock, because the last close of a file
// may take a long time. Not thread-safe: part of the node table, guarded by its lock.
class HeldObjects {
 public:
  // The maximum number of descriptors of common files.
  static constexpr std::size_t kMostHeld = 1024;

  // Makes `fd` the descriptor of a common file that was just looked up. If the file already has a
  // descriptor, keeps the old one, which a thread may be about to use.
  void hold_common(HeldObject& object, UniqueFd fd) {
    if (object.place) {
      common_.splice(common_.end(), common_, *object.place);
    } else {
      object.place = common_.insert(common_.end(), &object);
    }
    hold(object, {std::move(fd), Charge()});
    if (common_.size() > kMostHeld) release_common(*common_.front());
  }
  // Makes `fd` the descriptor of an object without a name, unless the object already has one.
  void hold(HeldObject& object, ChargedFd held) {
    auto own = std::make_shared<const UniqueFd>(std::move(held.fd));
    if (object.fd) return released_.push_back(std::move(own));
    object.fd = std::move(own);
    object.charge = std::move(held.charge);
  }
  // Releases the descriptor if the object holds it as a common file.
  void release_common(HeldObject& object) {
    if (!object.place) return;
    common_.erase(*object.place);
    object.place.reset();
    released_.push_back(std::move(object.fd));
  }
  // Releases the object's descriptor, of whatever kind, and ends its charge.
  void release_object(HeldObject& object) {
    release_common(object);
    if (object.fd) released_.push_back(std::move(object.fd));
    object.charge = Charge();
  }
  void release(UniqueFd fd) {
    if (fd) released_.push_back(std::make_shared<const UniqueFd>(std::move(fd)));
  }
  // Returns the released descriptors, to be closed once the lock is released.
  std::vector<SharedFd> take_released() { return std::exchange(released_, {}); }

 private:
  std::list<HeldObject*> common_;  // ordered by last lookup, the oldest first
  std::vector<SharedFd> released_;
};

}  // namespace cacheshim
