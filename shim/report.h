// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string_view>

// The library's only output: one line where something is wrong.
namespace cacheshim {

// Where the lines go: to the end of `path`, or to stderr for an empty one. `path` must stay valid.
void set_report_file(std::string_view path);

// To be called when the process starts: one that has no stderr then gets no lines there later, where
// its data may be.
void note_stderr();

// Writes "cacheshim: ", the parts and a newline by one write(2). Async-signal-safe; errno stays as
// it is; a closed pipe at stderr raises no SIGPIPE. A line over 1 KiB is cut.
void report_line(std::initializer_list<std::string_view> parts);

// The text of an error that ends the use of a mount. Unlike strerror it neither locks nor allocates.
std::string_view mount_error_text(int error);

}  // namespace cacheshim
