# SPDX-License-Identifier: Apache-2.0
"""Operations on files for the tests of real programs: workers.py FUNCTION WORD… calls one of them.

The tests also import this module. It uses only the standard library, so that any user can run it.
"""

import errno
import mmap
import os
import random
import sqlite3
import sys
import zipfile


def write_texts(directory, seed, *names):
    """Writes files with random numbers, one per line; about one file in five is executable."""
    pick = random.Random(int(seed))
    for name in names:
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lines = (b"%d\n" % pick.randrange(1 << 40) for _ in range(pick.randrange(200)))
        with open(path, "wb") as file:
            file.write(b"".join(lines))
        os.chmod(path, 0o755 if pick.randrange(5) == 0 else 0o644)


def write_c_project(directory, sources):
    """Writes `sources` C files with their headers, and a build.ninja that compiles them with ccache."""
    os.makedirs(directory)
    sources = int(sources)
    objects = " ".join(f"part{number}.o" for number in range(sources))
    rules = ["rule cc", "  command = ccache gcc -O1 -MMD -MF $out.d -c $in -o $out",
             "  depfile = $out.d", "  deps = gcc", "rule link", "  command = gcc $in -o $out",
             f"build program: link {objects}"]
    for number in range(sources):
        rules.append(f"build part{number}.o: cc part{number}.c")
        write_c_part(directory, number, sources)
    with open(f"{directory}/build.ninja", "w", encoding="ascii") as file:
        file.write("\n".join(rules) + "\ndefault program\n")


def write_c_part(directory, number, sources):
    """Writes a C file and its header; part 0 is the main program, which adds up the results of all other parts."""
    others = range(1, sources) if number == 0 else []
    includes = [f'#include "part{other}.h"' for other in others] or [f'#include "part{number}.h"']
    if number == 0:
        calls = " + ".join(f"part{other}()" for other in others)
        body = f'#include <stdio.h>\nint main(void) {{ printf("%ld\\n", {calls}); return 0; }}'
    else:
        body = f"long part{number}(void) {{ return {number}L * {number}L; }}"
    with open(f"{directory}/part{number}.c", "w", encoding="ascii") as file:
        file.write("\n".join([*includes, body, ""]))
    with open(f"{directory}/part{number}.h", "w", encoding="ascii") as file:
        file.write(f"#pragma once\nlong part{number}(void);\n")


def sum_of_c_project(sources):
    return sum(number * number for number in range(1, sources))


def connect(database):
    connection = sqlite3.connect(database, timeout=120, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def make_database(database, mode, rows):
    connection = connect(database)
    taken = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
    if taken != mode:
        sys.exit(f"the journal's mode is {taken}, not {mode}")
    connection.execute("CREATE TABLE pairs (writer INTEGER, number INTEGER, text TEXT)")
    connection.execute("CREATE INDEX by_text ON pairs (text)")
    with connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO pairs VALUES (-1, ?, ?)",
                               [(number, f"of the first, {number}") for number in range(int(rows))])
    connection.close()


def write_pairs(database, writer, transactions):
    """Writes two rows per transaction, so that a reader detects half of a transaction."""
    connection = connect(database)
    for number in range(int(transactions)):
        connection.execute("BEGIN IMMEDIATE")
        for text in ("one", "two"):
            connection.execute("INSERT INTO pairs VALUES (?, ?, ?)",
                               (int(writer), number, f"{text} of {writer} {number}" * 20))
        connection.execute("COMMIT")
    connection.close()


def read_pairs(database, transactions):
    """Counts the writers' rows until all exist; fails if a count is odd or smaller than the previous one."""
    connection, seen = connect(database), 0
    while seen < 2 * int(transactions):
        (now,) = connection.execute("SELECT count(*) FROM pairs WHERE writer >= 0").fetchone()
        if now % 2 or now < seen:
            sys.exit(f"{now} rows after {seen}")
        seen = now
    connection.close()


def look_at_database(database):
    connection = connect(database)
    print("journal", *connection.execute("PRAGMA journal_mode").fetchone())
    print("integrity", *connection.execute("PRAGMA integrity_check").fetchone())
    print("rows", *connection.execute("SELECT count(*) FROM pairs").fetchone())
    for row in connection.execute("SELECT writer, number, text FROM pairs ORDER BY 1, 2, 3"):
        print(*row)


def write_odd_tree(directory, for_a_base=False):
    """Creates files of all kinds, each with a property that a copy may lose. For a base, all files are readable,
    because the base belongs to root, and an ordinary user could not open the others."""
    pick, opened = random.Random(1), 0o444 if for_a_base else 0
    os.makedirs(directory, exist_ok=True)
    for number in range(120):
        below = f"{directory}/d{number % 5}/e{number % 3}"
        os.makedirs(below, exist_ok=True)
        write_plain_file(f"{below}/f{number}", pick.randbytes(pick.randrange(20000)),
                         pick.choice([0o400, 0o444, 0o600, 0o644, 0o711, 0o755, 0o640]) | opened)
    write_odd_files(directory, opened)
    for number in range(10):
        os.link(f"{directory}/d{number % 5}/e{number % 3}/f{number}", f"{directory}/linked{number}")
    write_sparse_file(f"{directory}/sparse", 9 << 20, 0, 3 << 20, 7 << 20)
    set_times_below(directory, pick)


def write_plain_file(path, data, mode=0o644):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def write_odd_files(directory, opened):
    for name in ("empty", "n" * 255, "with space\nand line", "\u00fcml\u00e4ut", ".hidden"):
        write_plain_file(f"{directory}/{name}", b"" if name == "empty" else name.encode())
    for name, target in (("to-file", "d0/e0/f0"), ("dangling", "not/there"), ("to-directory", "d1"),
                         ("absolute", "/nonexistent/x"), ("long", "t" * 4000)):
        os.symlink(target, f"{directory}/{name}")
    os.mkfifo(f"{directory}/fifo", 0o600 | opened)
    for name, mode in (("empty-directory", 0o755), ("closed-directory", 0o700), ("setgid", 0o2755)):
        os.mkdir(f"{directory}/{name}")
        os.chmod(f"{directory}/{name}", mode | opened | opened >> 2)


def write_sparse_file(path, size, *offsets):
    with open(path, "wb") as file:
        for offset in map(int, offsets):
            os.pwrite(file.fileno(), b"some data in a hole" * 300, offset)
        file.truncate(int(size))


def set_times_below(directory, pick):
    """Sets times in the past, in nanoseconds. They do not depend on the order in which a directory is listed, and thus
    are the same at every place."""
    paths = [os.path.join(path, name) for path, directories, files in os.walk(directory)
             for name in directories + files]
    for path in sorted(paths, reverse=True):  # names below a directory come before the directory
        when = 1_600_000_000_000_000_000 + pick.randrange(10**17)
        os.utime(path, ns=(when, when), follow_symlinks=False)
    os.utime(directory, ns=(10**18, 10**18 + 1))


def change_odd_tree(directory):
    """Removes some files, adds some, and changes the bytes, modes or times of others."""
    for number in range(0, 40, 4):
        os.unlink(f"{directory}/d{number % 5}/e{number % 3}/f{number}")
    for number in range(1, 40, 4):
        path = f"{directory}/d{number % 5}/e{number % 3}/f{number}"
        os.chmod(path, 0o644)
        write_plain_file(path, b"changed %d" % number, 0o640)
    for number in range(2, 40, 4):
        os.utime(f"{directory}/d{number % 5}/e{number % 3}/f{number}", ns=(10**18, 10**18 + number))
    write_plain_file(f"{directory}/d0/new", b"new")
    os.unlink(f"{directory}/to-file")
    os.symlink("elsewhere", f"{directory}/to-file")


def change_large_file(path):
    """Writes before and after offset 4 GiB, and prints the result: bytes, size, data and holes."""
    boundary = 4 << 30
    with open(path, "r+b") as file:
        fd = file.fileno()
        os.pwrite(fd, b"across the boundary", boundary - 7)
        os.pwrite(fd, b"far", 6 * (1 << 30) + 4)
        print("end", os.lseek(fd, 0, os.SEEK_END))
        for offset in (0, boundary - 10, boundary, 5 * (1 << 30), 6 * (1 << 30)):
            print("at", offset, os.pread(fd, 40, offset))
        with mmap.mmap(fd, 8192, offset=boundary) as region:
            print("mapped", region[:20])
            region[4096:4102] = b"mapped"
        print("through the map", os.pread(fd, 6, boundary + 4096))
        print_data_ranges(fd)
        os.ftruncate(fd, boundary + 1)
        print("cut", os.fstat(fd).st_size, os.pread(fd, 40, boundary - 7))
        os.ftruncate(fd, 6 * (1 << 30) + 7)
        print("grown", os.pread(fd, 40, boundary - 7))
    seen = os.stat(path)
    print("size", seen.st_size)
    print("sparse", seen.st_blocks * 512 < 1 << 20)


def print_data_ranges(fd):
    start = 0
    while True:
        try:
            data = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            print("no data after", start, errno.errorcode[error.errno])
            return
        start = os.lseek(fd, data, os.SEEK_HOLE)
        print("data", data, start)


def write_wheel(directory, version, modules):
    """Creates a wheel as packaging tools do: modules, a script, metadata and a record of all files."""
    info = f"sample-{version}.dist-info"
    files = {f"sample/part{number}.py": f"NUMBER = {number}\nVERSION = '{version}'\n"
             for number in range(int(modules))}
    files["sample/__init__.py"] = f"__version__ = '{version}'\n"
    files["sample/data/table.txt"] = "a table\n" * 1000
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sample\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "[console_scripts]\nsample = sample:main\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{directory}/sample-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name), text)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
