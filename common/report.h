// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string_view>

// All output of the preloaded library: lines about errors, and the report of CACHESHIM_CUDA_REPORT.
// Defined in shim/.
namespace cacheshim {

// Writes "cacheshim: ", the parts and a newline with one write(2), to the file of CACHESHIM_LOG or
// to stderr. Writes nothing if neither is available. Truncates a line of more than 1 KiB.
// Async-signal-safe. Leaves errno unchanged, and raises no SIGPIPE if stderr is a closed pipe.
void report_line(std::initializer_list<std::string_view> parts);

}  // namespace cacheshim
