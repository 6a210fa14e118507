// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

struct ControlRequest;

// The requests that concern jobs, and explain, which concerns a path in a job's view (docs/control.md). Each function
// answers or refuses the request.
void list_jobs(const ControlRequest& request);
void show_job(const ControlRequest& request);
void show_layer(const ControlRequest& request);
void start_job(const ControlRequest& request);
void prefetch(const ControlRequest& request);
void end_job(const ControlRequest& request);
void publish_job(const ControlRequest& request);
void discard_job(const ControlRequest& request);
void wait_for_job(const ControlRequest& request);
void explain(const ControlRequest& request);

}  // namespace cacheshim
