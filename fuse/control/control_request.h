// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fuse/control/control_session.h"
#include "fuse/control/inspector.h"
#include "fuse/jobs/caller.h"
#include "fuse/mount.h"
#include "store/publish/publisher.h"
#include "store/threads/slices.h"

namespace cacheshim {

// A request of the control directory during its execution. text() and flag() return "" and false for a field that is
// absent or has another type.
struct ControlRequest {
  Mount& mount;
  Caller caller;
  nlohmann::json fields;
  std::shared_ptr<ControlSession> session;
  std::optional<Inspector> inspector = std::nullopt;  // only for `explain`

  std::string text(const char* name) const {
    return fields.contains(name) && fields[name].is_string() ? fields[name].get<std::string>() : "";
  }
  bool flag(const char* name) const {
    return fields.contains(name) && fields[name].is_boolean() && fields[name].get<bool>();
  }
  // Returns a function that returns true while the client waits and the mount is not being closed.
  IsWanted wanted() const {
    return [session = session, &mount = mount] {
      return session->is_waiting() && !mount.is_closing();
    };
  }
  Publisher::Progress progress(const char* what) const {
    return [session = session, what](std::uint64_t done, std::uint64_t total) {
      session->progress(what, done, total);
    };
  }
};

}  // namespace cacheshim
