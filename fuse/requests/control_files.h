// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/result.h"

namespace cacheshim {

class ControlSession;
class Job;
struct Caller;

// What the control directory shows, and the requests that it takes. Call with no lock held.
class ControlFiles {
 public:
  virtual ~ControlFiles() = default;

  // The text of one of its files, and of a job's.
  virtual std::string text_of(const std::string& name) = 0;
  virtual std::string text_of_job(Job& job) = 0;
  // A request that was written to an open `control` file, which shows the answer.
  virtual Status submit(const std::shared_ptr<ControlSession>& session, const Caller& caller,
                        std::string_view request) = 0;
};

}  // namespace cacheshim
