// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string_view>

// The preloaded library's only output: one line where something is wrong. Defined in shim/.
namespace cacheshim {

// Writes "cacheshim: ", the parts and a newline by one write(2). Async-signal-safe; errno stays as
// it is; a closed pipe at stderr raises no SIGPIPE. A line over 1 KiB is cut.
void report_line(std::initializer_list<std::string_view> parts);

}  // namespace cacheshim
