// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string_view>

// The preloaded library's only output: one line about an error. Defined in shim/.
namespace cacheshim {

// Writes "cacheshim: ", the parts and a newline with one write(2). Async-signal-safe; leaves errno
// alone; a closed pipe at stderr raises no SIGPIPE. Truncates a line over 1 KiB.
void report_line(std::initializer_list<std::string_view> parts);

}  // namespace cacheshim
