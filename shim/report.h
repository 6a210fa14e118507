// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/report.h"

namespace cacheshim {

// Settles where lines go, once: to the end of the file that CACHESHIM_LOG names now, else to stderr. A
// process that has no stderr now gets no lines there later, where its data may be. Called when the process
// starts, and by the first line, if a library's constructor, which runs before ours, causes one.
void settle_reports();

// The text of an error that ends the use of a mount. Unlike strerror it neither locks nor allocates.
std::string_view mount_error_text(int error);

}  // namespace cacheshim
