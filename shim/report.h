// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/report.h"

namespace cacheshim {

// Decides, once, where lines go: to the end of the file that CACHESHIM_LOG now names, otherwise to
// stderr. A process that has no stderr at this time never gets lines there, because descriptor 2
// may later be its data. Called when the process starts, or by the first line if another library's
// constructor causes one before ours runs.
void settle_reports();

// The text of an error that ends the use of a mount. Unlike strerror it neither locks nor allocates.
std::string_view mount_error_text(int error);

}  // namespace cacheshim
