// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

struct ControlRequest;

// The requests on the whole mount and its base (docs/control.md). Each function answers or refuses the request. It
// refuses every caller but root and the user who mounted the store.
void close_mount(const ControlRequest& request);
void reopen_mount(const ControlRequest& request);
void list_waiting(const ControlRequest& request);
void collect_garbage(const ControlRequest& request);
void verify(const ControlRequest& request);

}  // namespace cacheshim
