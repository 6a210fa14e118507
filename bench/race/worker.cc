// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/race/calls.h"
#include "bench/race/race.h"
#include "bench/race/walk.h"

// The worker program of bench/race: it measures, and the Python program reports. Each command
// prints one line, a JSON object.
namespace cacheshim::race {
namespace {

struct Arguments {
  Tree tree;
  Terms terms;
  std::string row;
};

// Prints one line. If this fails, the reader detects the missing line.
void print(const nlohmann::json& object) { (void)::puts(object.dump().c_str()); }

double now() {
  timespec time{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &time);  // cannot fail with this clock
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void do_row(const Arguments& arguments) {
  const Row* row = find_row(arguments.row);
  if (row == nullptr) throw std::runtime_error("no row is called '" + arguments.row + "'");
  const Outcome outcome = run_race(*row, arguments.tree, arguments.terms);
  print({{"operations", outcome.operations},
         {"seconds", outcome.wall},
         {"own_cpu", outcome.own_cpu},
         {"daemon_cpu", outcome.daemon_cpu},
         {"other_cpu", outcome.other_cpu}});
}

void do_tree(const Arguments& arguments) {
  make_tree(arguments.tree);
  print({{"files", uint64_t{arguments.tree.keys} * kFilesPerKey}});
}

void do_read(const Arguments& arguments) {
  read_tree(arguments.tree);
  print({{"files", uint64_t{arguments.tree.keys} * kFilesPerKey}});
}

void do_walk(const Arguments& arguments) {
  const double begin = now();
  const uint64_t entries = walk(arguments.tree.root);
  print({{"entries", entries}, {"seconds", now() - begin}});
}

// Reads three files and waits until its standard input is closed, so that many workers can be alive
// at once.
void do_look(const Arguments& arguments) {
  for (unsigned file = 0; file < 3; ++file) {
    (void)read_file(arguments.tree.file_path(0, file));  // throws on failure
  }
  print({{"files", 3}});
  (void)::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
}

CLI::App* add(CLI::App& app, Arguments& arguments, const char* name, const char* what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("DIRECTORY", arguments.tree.root, "The cache directory")->required();
  return command;
}

void add_commands(CLI::App& app, Arguments& arguments) {
  CLI::App* row = add(app, arguments, "row", "Measure one row of the race");
  row->add_option("ROW", arguments.row, "The name of a row in rows.cc")->required();
  row->add_option("--keys", arguments.tree.keys, "The number of keys in the directory")->required();
  row->add_option("--processes", arguments.terms.processes)->check(CLI::PositiveNumber);
  row->add_option("--seconds", arguments.terms.seconds, "The duration of a timed row");
  row->add_option("--seed", arguments.terms.seed, "Another seed creates other new names");
  row->add_option("--daemon", arguments.terms.daemons, "Process that serves the directory");
  row->callback([&arguments] { do_row(arguments); });

  CLI::App* tree = add(app, arguments, "tree", "Make DIRECTORY the race's base, whatever it holds");
  tree->add_option("--keys", arguments.tree.keys)->required();
  tree->add_flag("--empty", arguments.tree.empty_files, "Files without content");
  tree->callback([&arguments] { do_tree(arguments); });

  CLI::App* read =
      add(app, arguments, "read", "Read the base once, so that the page cache holds it");
  read->add_option("--keys", arguments.tree.keys)->required();
  read->callback([&arguments] { do_read(arguments); });

  add(app, arguments, "walk", "Walk DIRECTORY as find -ls does")->callback([&arguments] {
    do_walk(arguments);
  });
  add(app, arguments, "look", "Read three files, and wait")->callback([&arguments] {
    do_look(arguments);
  });
  app.require_subcommand(1);
}

int run(int argc, char** argv) {
  CLI::App app("Does the timed work of scripts/bench");
  Arguments arguments;
  add_commands(app, arguments);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
}

}  // namespace
}  // namespace cacheshim::race

int main(int argc, char** argv) {
  try {
    return cacheshim::race::run(argc, argv);
  } catch (const std::exception& error) {
    (void)::fprintf(stderr, "race_worker: %s\n", error.what());
    return 1;
  }
}
