# SPDX-License-Identifier: Apache-2.0
"""Tests the library in processes that use CUDA, including processes with other interposers: its hooks, its messages,
and what it must not change."""

import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

import stage
from stage import DEADLOCK, PASSED

PYTHON = "/usr/bin/python3"
LOADER = "/lib64/ld-linux-x86-64.so.2"


def without_debug_entry(path):
    """Returns the program's bytes with another tag in place of DT_DEBUG. In the DT_DEBUG entry, the loader stores the
    address of its list of libraries."""
    program = bytearray(pathlib.Path(path).read_bytes())
    headers, count = struct.unpack_from("<Q", program, 32)[0], struct.unpack_from("<H", program, 56)[0]
    for at in range(headers, headers + 56 * count, 56):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", program, at)
        if kind != 2:  # PT_DYNAMIC
            continue
        for entry in range(offset, offset + size, 16):
            if struct.unpack_from("<Q", program, entry)[0] == 21:  # DT_DEBUG
                # The loader ignores this tag, which is reserved for operating systems.
                struct.pack_into("<Q", program, entry, 0x6000000D)
                return bytes(program)
    raise AssertionError(f"{path} has no DT_DEBUG")


def runtime_of(sanitizer):
    """Returns the path of a sanitizer's runtime library, or None if it is not installed for gcc."""
    found = subprocess.run(["gcc", f"-print-file-name=lib{sanitizer}.so"], capture_output=True,
                           text=True, check=False).stdout.strip()
    return os.path.realpath(found) if "/" in found else None


class Frameworks(unittest.TestCase):
    """Tests the ways in which frameworks find the driver's functions; matrix_test.py tests the calls that follow."""

    def check(self, *routes, load="cuModuleLoadData"):
        for route in routes:
            ended = stage.run_route(route, load, preload=[stage.library])
            self.assertEqual(ended.status, PASSED, ended)
            self.assertTrue(ended.is_hooked("cuInit") and ended.is_hooked(load), ended)

    def test_triton_opens_an_extension_that_is_linked_to_the_driver(self):
        self.check("local")

    def test_triton_uses_ctypes(self):
        code = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        ended = stage.run([PYTHON, "-c", code], preload=[stage.library])
        self.assertTrue(ended.is_hooked("cuInit"), ended)
        self.assertEqual(ended.first_init(), "EAGER", ended)

    def test_torch_opens_the_library_that_the_runtime_has_loaded(self):
        self.check("torch")

    def test_jax_calls_dlsym_for_every_name(self):
        self.check("dlsym", load="cuLibraryLoadData")

    def test_nccl_and_cudnn_call_the_runtimes_entry_point(self):
        self.check("v2", "v2_v1", load="cuLibraryLoadData")

    def test_cuda_11_calls_the_first_version(self):
        self.check("v1")


class Runtime(unittest.TestCase):
    """Tests NVIDIA's own runtime, up to the point at which it detects that the driver is a fake."""

    def test_runtime_looks_up_every_function_through_the_hooks(self):
        for runtime in ("static", "shared"):
            program = f"{stage.build}/tail_deadlock/tail_deadlock_{runtime}"
            if not os.path.exists(program):
                self.skipTest("no toolkit to build tail_deadlock with")
            ended = stage.run([program], preload=[stage.library])
            # 77: the program finds no GPU, because the runtime rejects the fake driver.
            self.assertEqual(ended.status, 77, ended)
            asked = [words[1] for words in ended.trace if words[0] == "cuGetProcAddress_v2"]
            self.assertIn("cuInit", asked)
            self.assertIn("cuLibraryLoadData", asked)
            self.assertTrue(ended.is_hooked("cuGetProcAddress_v2"), ended)


class OldDriver(unittest.TestCase):
    """Tests a driver that lacks the functions that were added after CUDA 11.6."""

    ANSWERS = ("cuInit: found\ncuModuleLoadData: found\ncuCtxCreate_v2: found\n"
               "cuModuleGetLoadingMode: error\n")

    def run_on(self, **variables):
        ended = stage.run(["client_old"], driver="old", preload=[stage.library], **variables)
        self.assertEqual((ended.status, ended.out), (0, self.ANSWERS), ended)
        self.assertTrue(ended.is_hooked("cuInit") and ended.is_hooked("cuModuleLoadData"), ended)
        return ended

    def test_missing_functions_cause_no_message(self):
        self.assertEqual(self.run_on().err, "")
        self.assertRegex(self.run_on(CACHESHIM_CUDA_REPORT="1").err, r"1 modules, 0 functions")

    def test_select_reports_that_the_driver_is_too_old(self):
        ended = self.run_on(CACHESHIM_CUDA_EAGER="select", CACHESHIM_CUDA_MATCH="tail")
        self.assertRegex(ended.err, r"\Acacheshim: .*needs a driver of CUDA 12.4 or newer.*\n\Z")


class OtherInterposers(unittest.TestCase):
    """Tests the library beside other libraries and tools in the same process."""

    def passes(self, ended):
        self.assertEqual(ended.status, PASSED, ended)
        self.assertEqual(ended.loads("tail"), ["before-spin"], ended)

    def test_a_constructor_that_calls_cuInit(self):
        ended = stage.run(["client_early", "cuModuleLoadData", "IMAGE"], preload=[stage.library])
        self.passes(ended)
        self.assertEqual(ended.trace[0][:2], ["cuInit", "EAGER"], ended)
        self.assertEqual(ended.callers("cuInit"), ["libcacheshim.so"] * 2, ended)

    def test_a_constructor_that_calls_cuInit_reports_to_the_log(self):
        with tempfile.TemporaryDirectory(prefix="cacheshim-cuda-") as scratch:
            log = pathlib.Path(scratch, "log")
            ended = stage.run(["client_early", "cuModuleLoadData", "IMAGE"], spin_ms=stage.SHORT_MS,
                              preload=[stage.library], CUDA_MODULE_LOADING="LAZY",
                              CACHESHIM_LOG=str(log))
            self.assertNotIn("cacheshim", ended.err, ended)
            self.assertRegex(log.read_text(), r"\Acacheshim: CUDA_MODULE_LOADING=LAZY is respected")

    def test_without_a_driver_a_pending_dlerror_stays(self):
        ended = stage.run(["pending_error"], preload=[stage.library])
        self.assertEqual((ended.status, ended.out), (0, "cuInit: 100\nthe application's error\n"),
                         ended)

    def test_another_interposer_of_dlsym_after_ours(self):
        for route in ("dlsym", "v2", "direct", "torch"):
            ended = stage.run_route(route, "cuModuleLoadData",
                                    preload=[stage.library, f"{stage.build}/libinterposer.so"])
            self.passes(ended)
            # dlsym returns the interposer's cuInit, as it does without our library.
            if route in ("dlsym", "torch"):
                self.assertEqual(ended.callers("cuInit"), ["libinterposer.so"], ended)
            else:
                self.assertTrue(ended.is_hooked("cuInit"), ended)
            self.assertTrue(ended.is_hooked("cuModuleLoadData"), ended)

    def test_another_interposer_of_dlsym_before_ours(self):
        for route in ("dlsym", "v2", "direct", "torch"):
            ended = stage.run_route(route, "cuModuleLoadData",
                                    preload=[f"{stage.build}/libinterposer.so", stage.library])
            self.passes(ended)
            if route in ("dlsym", "torch"):
                self.assertEqual(ended.callers("cuInit"), ["libinterposer.so"], ended)

    def test_sanitizers_come_first(self):
        for sanitizer in ("asan", "tsan"):
            runtime = runtime_of(sanitizer)
            if runtime is None:
                self.skipTest(f"no lib{sanitizer}.so beside gcc")
            for route in ("direct", "dlsym", "v2", "local", "torch"):
                with self.subTest(sanitizer=sanitizer, route=route):
                    ended = stage.run_route(route, "cuModuleLoadData",
                                            preload=[runtime, stage.library],
                                            ASAN_OPTIONS="detect_leaks=0")
                    self.passes(ended)
                    self.assertTrue(ended.is_hooked("cuInit"), ended)
                    self.assertEqual(ended.err, "")

    def test_nsys_and_ncu_inject_their_library_once(self):
        tool = f"{stage.build}/libinjection.so"
        for preload in ((), (stage.library,)):
            ended = stage.run_route("v2", "cuModuleLoadData", "--no-spin", preload=preload,
                                    CUDA_INJECTION64_PATH=tool)
            self.assertEqual(ended.status, PASSED, ended)
            self.assertEqual(ended.out.count(f"injected {tool}\n"), 1, ended)

    def test_the_variable_alone_covers_deepbind_and_other_namespaces(self):
        for route in ("deepbind", "namespace"):
            self.passes(stage.run_route(route, "cuLibraryLoadData", preload=[stage.library]))
            ended = stage.run_route(route, "cuLibraryLoadData", preload=[stage.hooks_only],
                                    spin_ms=stage.SHORT_MS)
            self.assertEqual(ended.status, DEADLOCK, ended)

    def test_two_copies_of_the_driver_have_hooks_of_their_own(self):
        ended = stage.run_route("second_copy", "cuModuleLoadData", preload=[stage.library])
        self.passes(ended)
        self.assertEqual(ended.callers("cuInit").__len__(), 2, ended)
        self.assertNotIn(["cuInit", "again"], [words[:2] for words in ended.trace])

    def test_values_that_an_application_sets_after_start(self):
        for mode in ("AUTO", "LAZY", "DEFAULT"):
            ended = stage.run_route("v2", "cuModuleLoadData", "--set", mode,
                                    preload=[stage.library])
            self.passes(ended)
            self.assertEqual(ended.first_init(), "EAGER", ended)
            self.assertEqual(ended.err, "")

    def test_values_that_an_application_left_for_its_children(self):
        self.passes(stage.run_route("raw", "cuModuleLoadData", preload=[stage.library],
                                    CUDA_MODULE_LOADING="AUTO"))


class Loader(unittest.TestCase):
    """Verifies that dlsym and dlvsym return the same as without the library."""

    def test_answers_are_the_same_as_without_the_library(self):
        command = ["callers", f"{stage.build}/libcallers_plugin.so"]
        without = stage.run(command)
        self.assertIn("chained: 11\n", without.out)
        self.assertIn("plugin default: 14\n", without.out)
        for preload in ([stage.library], [stage.hooks_only]):
            ended = stage.run(command, preload=preload)
            self.assertEqual(ended.out, without.out)
            self.assertEqual((ended.status, ended.err), (0, ""))

    def test_programs_that_hide_the_loaders_list(self):
        with tempfile.TemporaryDirectory() as scratch:
            program = pathlib.Path(scratch, "callers")
            program.write_bytes(without_debug_entry(f"{stage.build}/callers"))
            program.chmod(0o755)
            command = [str(program), f"{stage.build}/libcallers_plugin.so"]
            without, ended = stage.run(command), stage.run(command, preload=[stage.library])
        self.assertIn("chained: 11\n", without.out)
        self.assertEqual((ended.status, ended.out, ended.err), (0, without.out, ""))

    @unittest.skipUnless(os.path.exists(LOADER), f"no {LOADER}")
    def test_programs_that_the_loader_runs_as_an_argument(self):
        command = [LOADER, "--preload", stage.library, f"{stage.build}/client_direct",
                   "cuModuleLoadData", "IMAGE"]
        ended = stage.run(command)
        self.assertEqual(ended.status, PASSED, ended)
        self.assertTrue(ended.is_hooked("cuInit"), ended)

    def test_per_thread_stream_variants_are_the_drivers_own(self):
        code = ("import ctypes; d = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p()\n"
                "own = lambda f: ctypes.cast(f, ctypes.c_void_p).value\n"
                "d.cuGetProcAddress_v2.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int,"
                " ctypes.c_uint64, ctypes.c_void_p]\n"
                "d.cuGetProcAddress_v2(b'cuLaunchKernel', ctypes.byref(p), 12000, 2, None)\n"
                "print(p.value == own(d.cuLaunchKernel_ptsz) != own(d.cuLaunchKernel))")
        ended = stage.run([PYTHON, "-c", code], preload=[stage.library])
        self.assertEqual((ended.out, ended.err), ("True\n", ""), ended)
        self.assertTrue(ended.is_hooked("cuGetProcAddress_v2"), ended)

    def test_no_driver_looks_like_no_device(self):
        code = ("import ctypes; d = ctypes.CDLL(None); p = ctypes.c_void_p()\n"
                "print(d.cuInit(0), d.cuModuleLoadData(ctypes.byref(p), b''),"
                " d.cuGetProcAddress(b'cuInit', ctypes.byref(p), 11030, 0))")
        ended = stage.run([PYTHON, "-c", code], preload=[stage.library],
                          LD_LIBRARY_PATH="/nonexistent")
        self.assertEqual((ended.out, ended.err), ("100 100 100\n", ""), ended)


class ProcessesWithoutCuda(unittest.TestCase):
    """In a process that never opens libcuda, the hooks allocate no memory, look up no function of the driver, and print
    nothing."""

    def mallocs(self, library, **variables):
        ended = stage.run(["/bin/true"], preload=[library, f"{stage.build}/libcount_malloc.so"],
                          **variables)
        self.assertRegex(ended.out, r"^mallocs=\d+\n$", ended)
        return ended.out

    def test_nothing_is_allocated(self):
        plain = self.mallocs(stage.hooks_only)
        self.assertEqual(self.mallocs(stage.library), plain)
        self.assertEqual(self.mallocs(stage.library, CACHESHIM_CUDA_EAGER="off"), plain)
        self.assertEqual(self.mallocs(stage.library, CACHESHIM_CUDA_EAGER="select",
                                      CACHESHIM_CUDA_MATCH="x"), plain)

    def test_nothing_is_resolved(self):
        with tempfile.TemporaryDirectory() as scratch:
            ended = stage.run([PYTHON, "-c", "import ctypes; ctypes.CDLL('libm.so.6').cos"],
                              preload=[stage.library], LD_DEBUG="symbols,files",
                              LD_DEBUG_OUTPUT=f"{scratch}/debug")
            self.assertEqual(ended.status, 0, ended)
            text = "".join(file.read_text() for file in pathlib.Path(scratch).iterdir())
        self.assertIn("symbol=cos;", text)
        self.assertEqual(re.findall(r"symbol=cu[A-Z]\w*|file=libcuda\S*", text), [])

    def test_nothing_is_printed(self):
        ended = stage.run(["/bin/true"], preload=[stage.library], CACHESHIM_CUDA_EAGER="nonsense",
                          CACHESHIM_CUDA_REPORT="1", CUDA_MODULE_LOADING="LAZY")
        self.assertEqual((ended.status, ended.out, ended.err), (0, "", ""))


class Messages(unittest.TestCase):
    """Tests the messages on stderr: each is one line, and is printed only if something is wrong or was requested."""

    def lines(self, route="second_copy", **variables):
        ended = stage.run_route(route, "cuLibraryLoadData", "--no-spin", preload=[stage.library],
                                **variables)
        self.assertEqual(ended.status, PASSED, ended)
        return ended.err

    def assert_one_line(self, text, *parts):
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("cacheshim: "), text)
        for part in parts:
            self.assertIn(part, text)

    def test_a_correct_setup_prints_nothing(self):
        self.assertEqual(self.lines(), "")

    def test_a_lazy_user_is_warned(self):
        self.assert_one_line(self.lines(CUDA_MODULE_LOADING="LAZY"),
                             "CUDA_MODULE_LOADING=LAZY is respected", "CACHESHIM_CUDA_EAGER=force")
        self.assertEqual(self.lines(CUDA_MODULE_LOADING="LAZY", CACHESHIM_CUDA_EAGER="off"), "")

    def test_a_driver_that_is_lazy_despite_the_setting_is_reported(self):
        self.assert_one_line(self.lines(FAKE_CUDA_STUBBORN="1"), "lazily in spite of")

    def test_an_unknown_policy(self):
        self.assert_one_line(self.lines(CACHESHIM_CUDA_EAGER="yes"),
                             "'yes' is none of off, auto, force, select")

    def test_select_without_a_pattern(self):
        self.assert_one_line(self.lines(CACHESHIM_CUDA_EAGER="select"),
                             "select without CACHESHIM_CUDA_MATCH")
        self.assert_one_line(self.lines(CACHESHIM_CUDA_EAGER="select", CACHESHIM_CUDA_MATCH="("),
                             "'(' is not a POSIX extended regular expression")

    def test_the_report(self):
        report = self.lines("v2", CACHESHIM_CUDA_REPORT="1")
        self.assertRegex(report, r"^cacheshim: CUDA: policy auto, driver eager; 1 modules, "
                         r"2 functions, 0 preloaded, \d+\.\d ms, 2\.0 MiB of device memory\n$")
        report = self.lines("v2", CACHESHIM_CUDA_REPORT="1", CACHESHIM_CUDA_EAGER="select",
                            CACHESHIM_CUDA_MATCH="tail")
        self.assertRegex(report, r"policy select, driver lazy; 1 modules, 2 functions, "
                         r"1 preloaded, .*, 1\.0 MiB")


class Inheritance(unittest.TestCase):
    """The library sets CUDA_MODULE_LOADING in a process. The process's children must not mistake this value for the
    user's own setting."""

    def child(self, assignments, **variables):
        command = " ".join([assignments, f"{stage.build}/client_lookup", "dlsym",
                            "cuModuleLoadData", "IMAGE", "--no-spin"])
        return stage.run(["/bin/sh", "-c", command], preload=[stage.library], **variables)

    def test_children_get_the_users_settings(self):
        self.assertEqual(self.child("").first_init(), "EAGER")
        self.assertEqual(self.child("CACHESHIM_CUDA_EAGER=off").first_init(), "unset")
        self.assertEqual(self.child("CACHESHIM_DISABLE=1").first_init(), "unset")
        self.assertEqual(self.child("CACHESHIM_CUDA_EAGER=select").first_init(), "LAZY")
        self.assertEqual(self.child("CACHESHIM_CUDA_EAGER=auto",
                                    CACHESHIM_CUDA_EAGER="select").first_init(), "EAGER")
        self.assertEqual(self.child("CUDA_MODULE_LOADING=LAZY").first_init(), "LAZY")
        self.assertEqual(self.child("CACHESHIM_CUDA_EAGER=off",
                                    CUDA_MODULE_LOADING="EAGER").first_init(), "EAGER")


    def test_no_other_variable_of_the_environment_changes(self):
        for count in (0, 900, 1022, 1023, 1024, 1500):
            variables = {f"MINE_{n}": "x" for n in range(count)}
            plain = stage.run(["/usr/bin/env"], **variables).out.splitlines()
            ended = stage.run(["/usr/bin/env"], preload=[stage.library], **variables)
            added = {"CUDA_MODULE_LOADING=EAGER", "CACHESHIM_CUDA_SET=EAGER",
                     f"LD_PRELOAD={stage.library}"}
            scratch = re.compile("FAKE_CUDA_TRACE=|CACHESHIM_MOUNT=")  # these differ between two runs
            self.assertEqual({line for line in ended.out.splitlines() if not scratch.match(line)},
                             {line for line in plain if not scratch.match(line)} | added)
            self.assertEqual(len(ended.out.splitlines()), len(plain) + 3)

    def test_later_changes_of_the_environment_are_kept(self):
        script = ("export A=1; unset CUDA_MODULE_LOADING; export B=2; "
                  "exec env -u C sh -c 'echo $A$B ${CUDA_MODULE_LOADING-unset}'")
        for shell in ("/bin/sh", "/bin/bash"):
            ended = stage.run([shell, "-c", script], preload=[stage.library])
            self.assertEqual((ended.out, ended.err), ("12 EAGER\n", ""), ended)


class Defaults(unittest.TestCase):
    """Tests the [cuda] settings of the configuration, which the library reads from a file in the run directory."""

    def init_of(self, text, as_root=False, **variables):
        with tempfile.TemporaryDirectory(prefix="cacheshim") as scratch:
            directory = pathlib.Path(scratch, "cacheshim", "cuda-test")
            directory.mkdir(parents=True)
            (directory / "cuda").write_text(text)
            variables.setdefault("CACHESHIM_MOUNT", "/cuda/test")
            # In a root process, the library ignores XDG_RUNTIME_DIR, because the directory may belong to another
            # user. Unless `as_root` is set, the program therefore runs as uid 1000 of a user namespace.
            ended = stage.run_route("dlsym", "cuModuleLoadData", "--no-spin", preload=[stage.library],
                                    prefix=[] if as_root else ["unshare", "--user", "--map-user=1000"],
                                    XDG_RUNTIME_DIR=scratch, **variables)
            if "unshare failed" in ended.err:
                self.skipTest("no user namespaces here")
            self.assertEqual(ended.status, PASSED, ended)
            return ended.first_init(), ended.loads("tail")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_root_does_not_read_the_run_directory_of_a_user(self):
        self.assertEqual(self.init_of("*\toff\t\n", as_root=True), ("EAGER", ["before-spin"]))

    def test_the_first_line_that_matches_the_program_applies(self):
        self.assertEqual(self.init_of(""), ("EAGER", ["before-spin"]))
        self.assertEqual(self.init_of("other\toff\t\n"), ("EAGER", ["before-spin"]))
        self.assertEqual(self.init_of("client_lookup\toff\t\nclient*\tforce\t\n"), ("unset", []))
        self.assertEqual(self.init_of("client*\tselect\t^tail$\n"), ("LAZY", ["before-spin"]))
        self.assertEqual(self.init_of("*\tselect\t^other$\n"), ("LAZY", []))
        self.assertEqual(self.init_of("*\tno policy\t\nno tab\n*\toff\t"), ("unset", []))

    def test_the_mounts_path_may_be_written_with_more_slashes(self):
        self.assertEqual(self.init_of("*\toff\t\n", CACHESHIM_MOUNT="//cuda///test/")[0], "unset")

    def test_the_environment_overrides_the_configuration(self):
        self.assertEqual(self.init_of("*\toff\t\n", CACHESHIM_CUDA_EAGER="auto")[0], "EAGER")


if __name__ == "__main__":
    stage.main()
