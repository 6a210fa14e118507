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

// The contents of the control directory, and its requests. Call with no lock held.
class ControlFiles {
 public:
  virtual ~ControlFiles() = default;

  // Return the contents of a file of the control directory, or of a job's file in jobs/, as far as the caller may see
  // them. Errors: EACCES if the caller may not inspect the job (JobViews::may_inspect()).
  virtual std::string text_of(const std::string& name, const Caller& caller) = 0;
  virtual Result<std::string> text_of_job(Job& job, const Caller& caller) = 0;
  // Handles a request that was written to an open `control` file. Puts the answer into `session`. Later reads of the
  // file return the answer.
  virtual Status submit(const std::shared_ptr<ControlSession>& session, const Caller& caller,
                        std::string_view request) = 0;
};

}  // namespace cacheshim
