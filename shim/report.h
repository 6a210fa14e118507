// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/report.h"

namespace cacheshim {

// Where the lines go: to the end of `path`, or to stderr for an empty one. `path` must stay valid.
void set_report_file(std::string_view path);

// To be called when the process starts: one that has no stderr then gets no lines there later, where
// its data may be.
void note_stderr();

// The text of an error that ends the use of a mount. Unlike strerror it neither locks nor allocates.
std::string_view mount_error_text(int error);

}  // namespace cacheshim
