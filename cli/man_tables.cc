// SPDX-License-Identifier: Apache-2.0
// man_tables PAGE OUTPUT: copies a manual page and replaces the line "@COUNTERS@" with the table of counters, and
// "@LIMITS@" with the table of limits. Runs only at build time.
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

#include "common/counters.h"
#include "common/limit_rows.h"

namespace {

using namespace cacheshim;

void write_counters(std::ostream& out) {
  for (std::size_t i = 0; i < kCounterRows.size(); ++i) {
    const CounterRow& row = kCounterRows[i];
    if (i == 0 || row.section != kCounterRows[i - 1].section) {
      if (i > 0) out << ".El\n";
      out << ".Ss " << to_string(row.section) << "\n.Bl -tag -width Ds\n";
    }
    out << ".It Ic " << row.name << '\n' << row.help;
    out << (row.unit == CounterUnit::kBytes ? ", in bytes\n" : "\n");
  }
  out << ".El\n";
}

static_assert(row_of(Limit::kLayerSize).default_value == 1ULL << 40);  // the only size limit, shown as "1 TiB"

void write_limits(std::ostream& out) {
  out << ".Bl -tag -width Ds\n";
  for (const LimitRow& row : kLimitRows) {
    out << ".It Ic " << row.key << "\nThe most " << row.what << ".\nAt the limit, " << row.effect;
    if (row.error_name == "none") {
      out << ".\n";
    } else {
      out << "\n.Pq Er " << row.error_name << " .\n";
    }
    out << "Default: " << (row.is_size() ? "1 TiB" : std::to_string(row.default_value)) << ".\n";
  }
  out << ".El\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream page(argv[1]);
  std::ofstream out(argv[2]);
  bool is_filled = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "@COUNTERS@") {
      write_counters(out);
    } else if (line == "@LIMITS@") {
      write_limits(out);
    } else {
      out << line << '\n';
      continue;
    }
    is_filled = true;
  }
  if (!is_filled) std::fprintf(stderr, "man_tables: %s has no line @COUNTERS@ or @LIMITS@\n", argv[1]);
  return is_filled && out.flush() ? 0 : 1;
}
