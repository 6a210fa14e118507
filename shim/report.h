// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/report.h"

namespace cacheshim {

// The first call decides where reported lines go: to the end of the file that CACHESHIM_LOG names, otherwise to stderr.
// Root uses the file only if no other user can have chosen or replaced it (trusted_paths.h). If the process has no
// stderr at the first call, the library never writes to descriptor 2, which may later be a data file. The constructor
// calls this function. So does report_line(), because a hook may report something when another library's constructor
// calls it, before this library's constructor runs.
void settle_reports();

// Returns the text of an error that ends the use of a mount. Unlike strerror, neither locks nor allocates.
std::string_view mount_error_text(int error);

}  // namespace cacheshim
