# SPDX-License-Identifier: Apache-2.0
"""Makes file-system calls of all kinds below a directory, and prints the results without the directory's name.

all_calls.py DIRECTORY. Runs on a system's own Python, 3.6 or later; the caller compares the output for two directories.
"""

import errno
import fcntl
import glob
import mmap
import os
import shutil
import stat
import subprocess
import sys
import tempfile

TOP = sys.argv[1]


def at(*names):
    return os.path.join(TOP, *names)


def show(value):
    if isinstance(value, os.stat_result):
        mode, links = stat.filemode(value.st_mode), value.st_nlink
        return f"{mode} {links} links, {value.st_size} bytes" if stat.S_ISREG(value.st_mode) else mode
    return str(value).replace(TOP, "TOP")


def say(what, call, *arguments, **options):
    try:
        print(what, show(call(*arguments, **options)))
    except OSError as error:
        print(what, errno.errorcode.get(error.errno), str(error.filename).replace(TOP, "TOP"))


def write(path, text, mode="w"):
    with open(path, mode) as file:
        return file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


def files():
    say("write", write, at("file"), "twelve bytes")
    say("append", write, at("file"), "and more", "a")
    say("read", read, at("file"))
    say("exclusive", os.open, at("file"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    say("chmod", os.chmod, at("file"), 0o640)
    say("utime", os.utime, at("file"), (7, 8))
    say("mtime", os.path.getmtime, at("file"))
    for look in (os.stat, os.lstat):
        say(look.__name__, look, at("file"))
        say(look.__name__, look, at("missing"))
    say("access", os.access, at("file"), os.R_OK | os.W_OK)
    say("truncate", os.truncate, at("file"), 6)
    say("link", os.link, at("file"), at("linked"))
    say("symlink", os.symlink, "file", at("link"))
    say("readlink", os.readlink, at("link"))
    say("realpath", os.path.realpath, at("link"))
    say("rename", os.rename, at("linked"), at("renamed"))
    say("replace", os.replace, at("renamed"), at("file"))
    say("missing", os.unlink, at("missing"))
    say("mkfifo", os.mkfifo, at("fifo"))
    say("setxattr", os.setxattr, at("file"), "user.colour", b"red")
    say("getxattr", os.getxattr, at("file"), "user.colour")
    with open(at("file"), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[0:2] = b"TW"
        say("fstat", os.fstat, file.fileno())
        say("name", os.readlink, "/proc/self/fd/%d" % file.fileno())
    say("read", read, at("file"))


def directories():
    say("mkdir", os.mkdir, at("directory"), 0o750)
    say("again", os.mkdir, at("directory"))
    say("makedirs", os.makedirs, at("deep", "deeper"), exist_ok=True)
    say("below", write, at("deep", "deeper", "file"), "deep")
    say("listdir", lambda path: sorted(os.listdir(path)), TOP)
    say("scandir", lambda path: sorted(e.name for e in os.scandir(path) if e.is_dir()), TOP)
    say("walk", lambda path: sorted(os.walk(path)), at("deep"))
    say("glob", lambda path: sorted(glob.glob(path)), at("*", "*", "*"))
    say("not empty", os.rmdir, at("deep"))
    say("chdir", os.chdir, at("deep"))
    say("getcwd", os.getcwd)
    say("relative", read, "deeper/file")
    say("above", read, "../file")
    os.chdir("/")
    directory = os.open(at("deep"), os.O_RDONLY)
    say("by descriptor", os.stat, "deeper/file", dir_fd=directory)
    say("open below", lambda: os.read(os.open("deeper/file", os.O_RDONLY, dir_fd=directory), 99))
    os.close(directory)
    say("copytree", shutil.copytree, at("deep"), at("copy"))
    say("rmtree", shutil.rmtree, at("deep"))
    with tempfile.NamedTemporaryFile(dir=TOP) as file:
        say("temporary", os.path.dirname, file.name)


def processes():
    for words in (["cat", at("file")], ["sh", "-c", "cd $0 && pwd && ls", at("copy")],
                  ["stat", "-c", "%a %s", at("file")], ["cp", at("file"), at("copied")],
                  ["mv", at("copied"), at("moved")], ["rm", "-r", at("copy")],
                  ["tar", "-C", TOP, "-cf", at("tar"), "file"], ["tar", "-tf", at("tar")],
                  ["env", "-i", "/bin/cat", at("file")], ["find", TOP, "-name", "m*"]):
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(words[0], done.returncode, show(done.stdout.decode()))
    script = at("script")
    write(script, "#!/bin/sh\necho run\n")
    os.chmod(script, 0o755)
    say("script", subprocess.check_output, [script])


os.umask(0o022)
files()
directories()
processes()
for name in sorted(os.listdir(TOP)):
    shutil.rmtree(at(name)) if os.path.isdir(at(name)) else os.unlink(at(name))
say("left", os.listdir, TOP)
