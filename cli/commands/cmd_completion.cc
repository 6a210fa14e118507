// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/text.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

// A word that may follow a command: a subcommand such as "start", or an option such as "--mount".
struct Word {
  std::string text;
  std::string description;
  bool takes_value = false;

  bool is_option() const { return text.starts_with('-'); }
};

struct Command {
  std::string path;  // the words after "cacheshim", such as "job start"; empty for cacheshim itself
  std::vector<Word> words;
};

// Quotes a text for the three shells.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'')
      result += R"('\'')";
    else
      result += c;
  }
  return result + "'";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void add_visible_options(const CLI::App& app, std::vector<Word>& words) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      words.push_back(
          {"--" + name, first_line(option->get_description()), option->get_expected_max() > 0});
    }
  }
}

// Appends `app` and, after it, all commands below it.
void collect(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  const auto is_visible = [](const CLI::App* one) { return !one->get_group().empty(); };
  const auto below = app.get_subcommands(is_visible);
  Command command{path, {}};
  for (const CLI::App* one : below)
    command.words.push_back({one->get_name(), first_line(one->get_description())});
  add_visible_options(app, command.words);
  commands.push_back(std::move(command));
  for (const CLI::App* one : below)
    collect(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), commands);
}

// Returns the paths of all commands except cacheshim itself, quoted.
std::vector<std::string> quoted_paths(const std::vector<Command>& commands) {
  std::vector<std::string> paths;
  for (const Command& one : commands) {
    if (!one.path.empty()) paths.push_back(shell_quoted(one.path));
  }
  return paths;
}

// Returns lines of shell code, for bash and zsh, that find the command among the words before the cursor and then open
// a `case` over the commands. `before`: the shell expression that expands to these words.
std::string find_command(std::string_view before, const std::vector<Command>& commands) {
  return fmt::format(R"(    local command='' next word
    for word in {}; do
        next=${{command:+$command }}$word
        case $next in
            {}) command=$next ;;
        esac
    done
    case $command in
)",
                     before, fmt::join(quoted_paths(commands), "|"));
}

void print_bash(const std::vector<Command>& commands) {
  print_lines("# bash completion of cacheshim\n_cacheshim() {\n" +
              find_command(R"("${COMP_WORDS[@]:1:COMP_CWORD-1}")", commands));
  for (const Command& one : commands) {
    std::vector<std::string> words;
    for (const Word& word : one.words) words.push_back(word.text);
    print_lines(fmt::format("        {}) word={} ;;\n", shell_quoted(one.path),
                            shell_quoted(fmt::format("{}", fmt::join(words, " ")))));
  }
  print_lines(R"(    esac
    mapfile -t COMPREPLY < <(compgen -W "$word" -- "$2")
}
complete -o default -F _cacheshim cacheshim
)");
}

void print_zsh(const std::vector<Command>& commands) {
  print_lines("#compdef cacheshim\n_cacheshim() {\n    local -a candidates\n" +
              find_command("${words[2,CURRENT-1]}", commands));
  for (const Command& one : commands) {
    print_lines(fmt::format("        {}) candidates=(\n", shell_quoted(one.path)));
    for (const Word& word : one.words)
      print_lines(
          fmt::format("            {}\n", shell_quoted(word.text + ":" + word.description)));
    print_lines("        ) ;;\n");
  }
  print_lines(R"(    esac
    _describe -o 'command or option' candidates || _files
}
_cacheshim
)");
}

void print_fish(const std::vector<Command>& commands) {
  print_lines(R"(# fish completion of cacheshim
function __cacheshim_command
    set -l command ''
    for word in (commandline -opc)[2..]
        set -l next (string trim -- "$command $word")
        switch $next
)");
  print_lines(fmt::format(R"(            case {}
                set command $next
        end
    end
    test "$command" = "$argv"
end
)",
                          fmt::join(quoted_paths(commands), " ")));
  for (const Command& one : commands) {
    const std::string at =
        fmt::format("complete -c cacheshim -n {}",
                    shell_quoted("__cacheshim_command " + shell_quoted(one.path)));
    for (const Word& word : one.words) {
      const std::string offered =
          word.is_option() ? "-l " + word.text.substr(2) + (word.takes_value ? " -r" : "")
                           : "-f -a " + word.text;
      print_lines(fmt::format("{} {} -d {}\n", at, offered, shell_quoted(word.description)));
    }
  }
}

}  // namespace

void add_completion(CLI::App& app, int& exit_code) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes cacheshim's commands and options in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Packages install the scripts. Without a package, for example:\n"
      "  cacheshim completion bash > /etc/bash_completion.d/cacheshim");
  command->callback([&app, shell, &exit_code] {
    std::vector<Command> commands;
    collect(app, "", commands);
    if (*shell == "bash") print_bash(commands);
    if (*shell == "zsh") print_zsh(commands);
    if (*shell == "fish") print_fish(commands);
    exit_code = kExitSuccess;
  });
}

}  // namespace cacheshim::cli
