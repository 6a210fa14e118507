// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

struct ControlRequest;

// The requests that concern the whole mount or its base (docs/control.md). Each function answers or refuses the
// request. Only root and the user who mounted the store may make these requests.
void close_mount(const ControlRequest& request);
void reopen_mount(const ControlRequest& request);
void list_waiting(const ControlRequest& request);
void collect_garbage(const ControlRequest& request);
void verify(const ControlRequest& request);

}  // namespace cacheshim
