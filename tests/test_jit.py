"""Compilation: what compiled code may do, and how it is kept."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from builders import make_job, make_workload
from headway import jit
from headway.domain.records import ClusterView, zeros
from headway.domain.workload import Workload
from headway.engine import compilation, run
from headway.experiments import compare
from headway.experiments.sweep import run as sweep
from headway.jit import EntryPoint
from headway.jit.code import read_code
from headway.jit.compiler import compile_code
from headway.jit.dependencies import fingerprint
from headway.jit.views import View, fields_of
from headway.network.cuts import sending_by_server
from headway.policies.policy_set import PolicySet
from headway.user_files import load_file
from waiting import PATIENCE_S, eventually

CODE = "from headway import jit; print(jit.cache_folder())"


def cache_folder(environment: dict[str, str], package: Path | None = None) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **environment, "PYTHONPATH": str(package or "")},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


def test_the_folder_can_be_chosen(tmp_path: Path) -> None:
    assert cache_folder({"HEADWAY_CACHE_DIR": str(tmp_path / "c")}).parent == tmp_path / "c"
    without = {"HEADWAY_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "x")}
    assert cache_folder(without).parent == tmp_path / "x" / "headway"


def test_a_folder_that_cannot_be_made_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = cache_folder({"HEADWAY_CACHE_DIR": str(tmp_path / "file" / "c")})
    assert folder.is_dir()
    assert tmp_path not in folder.parents


def test_an_edit_anywhere_in_the_sources_changes_the_folder(tmp_path: Path) -> None:
    import headway

    copy = tmp_path / "headway"
    # Other processes may be writing bytecode, to temporary files that are gone a moment later.
    bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(headway.__file__).parent, copy, ignore=bytecode)
    chosen = {"HEADWAY_CACHE_DIR": str(tmp_path / "c")}
    before = cache_folder(chosen, tmp_path)
    assert before == cache_folder(chosen, Path(headway.__file__).parent.parent)
    with (copy / "network" / "messages.py").open("a") as stream:
        stream.write("\n# edited\n")
    assert cache_folder(chosen, tmp_path) != before


SMALL = """
import numba
import numpy as np

from headway.jit import View, inlined, part, routine
from headway.policies import ClusterView, most_messages

class Pair(View):
    left: np.typing.NDArray[np.int64]
    right: np.typing.NDArray[np.float64]

@inlined
def half(value):
    return value // 2

@part
def total(pair):
    result = 0
    for i in range(len(pair.left)):
        result += half(pair.left[i])
    return result

def work(pair, factor):
    pair.right[0] = 2.5
    return total(pair) * factor

def other(pair, factor):
    return factor

@routine
def squares(count):
    values = np.zeros(count, np.int64)
    for i in range(count):
        values[i] = i * i
    return values

def refuse(number):
    if number > 3:
        raise ValueError(f"not {number}")
    return number + 1

def allocate(count, rounds):
    result = 0
    for _ in range(rounds):
        result += squares(count)[count - 1]
    return result

def fail(job):
    if job > 3:
        raise ValueError("job", job)
    return squares(3)[job]

def ratio(value):
    return value / 2

@numba.njit
def helper(cluster, message):
    return most_messages(cluster, message) + 1

def through_numba(cluster, message):
    return helper(cluster, message)
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of small functions to compile, with a cache of its own in every test."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("headway.jit.code.cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "small.py").write_text(SMALL)
    return load_file(tmp_path / "small.py", "small")


def working(small: Any) -> EntryPoint:
    return EntryPoint(small.work, jit.signature(int, small.Pair, int), "a test", {"_nrt": False})


def pair(small: Any) -> Any:
    return small.Pair(left=np.array([3, 4, 5]), right=np.zeros(1))


def test_compiled_code_reads_and_writes_a_view(small: Any) -> None:
    view = pair(small)
    assert jit.load(working(small))(view, 10) == (1 + 2 + 2) * 10
    assert view.right[0] == 2.5
    assert small.work(view, 10) == 50, "without compilation it is the same"


@pytest.mark.parametrize("count", [1, 10_000, 100_000])
def test_arrays_that_compiled_code_makes_are_given_back(small: Any, count: int) -> None:
    entry = EntryPoint(small.allocate, jit.signature(int, int, int), "a test")
    code = jit.load(entry)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds = 4 * 10**8 // (8 * count) if count > 1 else 10**6
    assert code(count, rounds) == rounds * (count - 1) ** 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # of 400,000 KB


def test_an_error_in_compiled_code_is_raised_with_its_line(small: Any) -> None:
    options = {"boundscheck": True}
    code = jit.load(EntryPoint(small.fail, jit.signature(int, int), "a test", options))
    assert code(2) == 4
    with pytest.raises(ValueError, match="job") as caught:
        code(4)
    assert caught.value.args == ("job", 4)
    name, file, line = caught.value.compiled_from  # type: ignore[attr-defined]
    assert (name, Path(file).name, line) == ("fail", "small.py", SMALL.split("\n").index(
        '        raise ValueError("job", job)') + 1)  # fmt: skip
    with pytest.raises(IndexError):
        code(3)


def test_functions_compiled_by_numba_itself_may_call_parts(small: Any) -> None:
    entry = EntryPoint(small.through_numba, jit.signature(int, ClusterView, int), "a test")
    kinds = fields_of(ClusterView).items()
    arrays = {name: zeros(2, kind) for name, kind in kinds if isinstance(kind, np.dtype)}
    view = ClusterView(**arrays, sending_by_server=sending_by_server)
    view.messages.links[:], view.ports.messages[:] = 1, 4
    assert jit.load(entry)(view, 0) == 5


def test_what_is_missing_is_compiled_ahead(small: Any, caplog: pytest.LogCaptureFixture) -> None:
    allocate = EntryPoint(small.allocate, jit.signature(int, int, int), "allocate")
    wrong = EntryPoint(small.ratio, jit.signature(int, int), "ratio")
    entries = [working(small), allocate, wrong]
    with caplog.at_level("INFO", "headway"):
        jit.compile_missing(entries, lambda missing: " and ".join(one.title for one in missing))
    assert caplog.messages == ["Compiling a test and allocate and ratio for this machine, once …"]
    caplog.clear()
    assert [entry.is_missing() for entry in entries] == [False, False, True]
    assert jit.load(working(small))(pair(small), 1) == 5
    with pytest.raises(jit.ResultError, match="float64"):
        jit.load(wrong)
    assert not any("a test" in message or "allocate" in message for message in caplog.messages)


def test_what_cannot_be_kept_on_disk_is_compiled_once(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = EntryPoint(small.refuse, jit.signature(int, int), "refuse")
    wrong = EntryPoint(small.ratio, jit.signature(int, int), "ratio")
    compiled = []

    def compile_and_note(function: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append(function)
        return compile_code(function, *arguments, **options)

    monkeypatch.setattr(jit.compiler, "compile_code", compile_and_note)
    monkeypatch.setattr(jit, "_may_fork", lambda: False)
    jit.compile_missing([refusing, wrong], lambda _: "both")
    assert refusing.is_missing()
    with ThreadPoolExecutor(2) as pool:
        assert [code(2) for code in pool.map(jit.load, [refusing] * 4)] == [3] * 4
    with pytest.raises(jit.ResultError, match="float64"):
        jit.load(wrong)
    assert compiled == [small.refuse, small.ratio]


def test_a_process_that_may_have_no_children_compiles_everything_itself(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a `multiprocessing.Pool`."""
    process: Any = multiprocessing.current_process()
    monkeypatch.setitem(process._config, "daemon", True)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    refusing = EntryPoint(small.refuse, jit.signature(int, int), "refuse")
    jit.compile_missing([working(small), refusing], lambda _: "both")
    assert jit.load(refusing)(2) == 3


class _StoppedError(Exception):
    """Threads would start now."""


_NAMES = ["paper", "ff+fifo+srsf:2"]


def _sampled(workload: Workload, folder: Path) -> None:
    run.simulate(workload, "2x2", policy=_NAMES[1], accuracy="1%")


def _compared(workload: Workload, folder: Path) -> None:
    compare.compare(workload, _NAMES, "2x2")


def _swept(workload: Workload, folder: Path) -> None:
    sweep.run_sweep({"workloads": "paper", "policies": _NAMES, "seeds": 1}, folder)


@pytest.mark.parametrize(
    ("start", "policies"),
    [(_sampled, _NAMES[1:]), (_compared, _NAMES), (_swept, _NAMES)],
    ids=["sampled", "comparison", "sweep"],
)
def test_what_runs_in_threads_is_compiled_before_them(
    start: Callable[[Workload, Path], None],
    policies: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Beside other threads no process forks, so that everything is compiled in one."""

    def stop(*_: Any) -> None:
        raise _StoppedError

    looked_for: set[EntryPoint] = set()
    monkeypatch.setattr(compilation, "_looked_for", looked_for)
    monkeypatch.setattr(run, "_FEW_TASKS", 0)
    for module in (run, compare, sweep):
        monkeypatch.setattr(module, "run_in_threads", stop)
    with pytest.raises(_StoppedError):
        start(make_workload(make_job(gpus=2), make_job(gpus=1)), tmp_path)
    wanted = {
        f"{choice.policy.kind} policy {choice.policy.name}"
        for policy in policies
        for choice in PolicySet.parse(policy).choices
    }
    assert {entry.title for entry in looked_for} == {"the engine"} | wanted


@pytest.mark.parametrize(
    "damage", ["empty", "cut", "flipped", "header", "other", "another's", "huge", "pipe"]
)
def test_damaged_code_is_compiled_again(
    small: Any, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    jit.load(working(small))
    path = working(small).path()
    assert path is not None
    intact = path.read_bytes()
    flipped = bytearray(intact)
    flipped[len(intact) // 2] ^= 1
    damaged = {
        "empty": b"",
        "cut": intact[:-100],
        "flipped": bytes(flipped),
        "header": b'{"symbol": 3}\n' + intact.partition(b"\n")[2],
        "other": b"\x00\xff" * 1000,
    }
    if damage == "another's":
        other = EntryPoint(small.other, jit.signature(int, small.Pair, int), "another")
        jit.load(other)
        shutil.copy(other.path() or "", path)
    elif damage == "huge":
        os.truncate(path, 2**40)
    elif damage == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        path.write_bytes(damaged[damage])
    assert jit.load(working(small))(pair(small), 1) == 5
    assert "The compiled code of a test is damaged" in caplog.text
    assert read_code(path) is not None
    caplog.clear()
    assert jit.load(working(small))(pair(small), 1) == 5
    assert not caplog.text


def test_an_edit_of_the_file_is_compiled(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "edited.py").write_text(f"def f(x):\n    return x + {number}\n")
        sys.modules.pop("edited_edited", None)
        module = load_file(tmp_path / "edited.py", "edited")
        assert jit.load(EntryPoint(module.f, jit.signature(int, int), "a test"))(10) == 10 + number


CONSTANTS = """
import numpy as np
from headway.jit import routine

NUMBER, PAIR, TABLE = 1, (5, 1), np.array([5, 1])

class settings:
    pass

@routine
def helper():
    return NUMBER

def of_number(x):
    return x + NUMBER

def of_tuple(x):
    return x + PAIR[1]

def of_array(x):
    return x + TABLE[1]

def of_helper(x):
    return x + helper()

def of_module(x):
    return x + settings.NUMBER
"""


@pytest.mark.parametrize("name", ["number", "tuple", "array", "helper", "module"])
def test_code_is_kept_for_the_values_of_its_globals(tmp_path: Path, name: str) -> None:
    (tmp_path / "constants.py").write_text(CONSTANTS)
    module: Any = load_file(tmp_path / "constants.py", "constants")
    module.settings = ModuleType("settings")
    function = getattr(module, f"of_{name}")

    def entry() -> EntryPoint:
        return EntryPoint(function, jit.signature(int, int), "a test")

    here = entry()
    for number in (1, 2, 1):
        module.NUMBER = module.TABLE[1] = module.settings.NUMBER = number
        module.PAIR = (5, number)
        assert jit.load(here)(10) == 10 + number, "in this process"
        assert jit.load(entry())(10) == 10 + number, "from the disk"
        assert not here.is_missing()
    module.NUMBER = module.PAIR = module.TABLE = module.settings = object()
    assert here.path() is None


def test_code_is_kept_for_the_way_in_which_its_parts_are_compiled(tmp_path: Path) -> None:
    found = set()
    for decorator in ("part", "routine", "inlined"):
        (tmp_path / "parts.py").write_text(
            f"from headway.jit import {decorator}\n@{decorator}\ndef one():\n    return 1\n"
            "def f():\n    return one()\n"
        )
        found.add(fingerprint(load_file(tmp_path / "parts.py", "parts").f))
    assert len(found) == 3


def test_functions_of_a_factory_differ_by_what_they_enclose(tmp_path: Path) -> None:
    source = "def make(n):\n    def f(x):\n        return x + n\n    return f\n"
    (tmp_path / "factory.py").write_text(source)
    make = load_file(tmp_path / "factory.py", "factory").make
    codes = [jit.load(EntryPoint(make(n), jit.signature(int, int), "a test")) for n in (1, 2)]
    assert [code(10) for code in codes] == [11, 12]
    assert EntryPoint(make(object()), jit.signature(int, int), "a test").path() is None


def test_a_function_must_return_what_its_signature_says(small: Any) -> None:
    with pytest.raises(jit.ResultError, match="float64"):
        jit.load(EntryPoint(small.ratio, jit.signature(int, int), "a test"))


def test_fields_of_a_view_are_arrays_whatever_numpy_calls_them() -> None:
    class Arrays(View):
        """Has two arrays."""

    Arrays.__annotations__ = {
        "before": np.ndarray[Any, np.dtype[np.float64]],
        "since_2_5": list[np.int64],
    }
    assert fields_of(Arrays) == {"before": np.float64, "since_2_5": np.int64}


def test_a_view_takes_only_what_it_declares(small: Any) -> None:
    with pytest.raises(TypeError, match=r"Pair: missing or unknown: other, right"):
        small.Pair(left=np.zeros(1, np.int64), other=1)
    for wrong in (np.zeros(1), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)[::2]):
        with pytest.raises(TypeError, match=r"Pair\.left: not a row of int64"):
            small.Pair(left=wrong, right=np.zeros(1))


def test_the_second_start_imports_neither_numba_nor_what_it_needs() -> None:
    code = (
        "import sys; from headway import generate_workload, simulate\n"
        "simulate(generate_workload('paper'))\n"
        "print(*({'numba', 'scipy', 'polars'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    assert again.stdout.split() == []


def test_an_interrupted_compilation_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "simulate", "muri-1"],
        env={**os.environ, "HEADWAY_CACHE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Compiling the engine and 3 policies")
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (started,) = eventually(lambda: listing.read_text().split())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "", "\nheadway: interrupted\n")
    eventually(lambda: not Path(f"/proc/{started}").exists())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".code"]


BROKEN_OFF = """
import os, signal, sys
from llvmlite.binding import ModuleRef
from headway import interrupts, jit
from headway.user_files import load_file
from pathlib import Path

detach = ModuleRef.detach

def interrupted(module):
    os.kill(os.getpid(), signal.SIGINT)  # LLVM has taken the module; llvmlite is about to note it.
    detach(module)

small = load_file(Path("small.py"), "small")
interrupts.handle_signals()
ModuleRef.detach = interrupted
try:
    jit.load(jit.EntryPoint(small.work, jit.signature(int, small.Pair, int), "a test"))
finally:
    interrupts.leave_now()
"""


def test_an_interrupt_within_llvm_does_not_crash_the_process(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_OFF],
        env={**os.environ, "HEADWAY_CACHE_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, said) == (130, "headway: interrupted")


@pytest.mark.slow
def test_a_cold_start_compiles_no_function_twice(tmp_path: Path) -> None:
    """Everything in one process, to see it all: with a second thread it does not fork."""
    code = (
        "import threading; from collections import Counter; from numba.core import event\n"
        "from headway import generate_workload, simulate\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "counts = Counter()\n"
        "class Count(event.Listener):\n"
        "    def on_start(self, e): counts[e.data['dispatcher'].py_func] += 1\n"
        "    def on_end(self, e): pass\n"
        "event.register('numba:compile', Count())\n"
        "simulate(generate_workload('paper'))\n"
        "ours = {f.__qualname__: n for f, n in counts.items() if 'headway' in f.__module__}\n"
        "print(len(ours), [name for name, count in ours.items() if count > 1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADWAY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    functions, twice = done.stdout.split(maxsplit=1)
    assert int(functions) > 80
    assert twice.strip() == "[]"


def test_shortcuts_give_what_python_gives() -> None:
    """Of `min`, `max`, `int` and indices, which Headway teaches Numba to compile sooner."""

    def folded(whole: Any, real: Any, narrow: Any) -> int:
        whole[-1] = min(whole[0], narrow[1]) + max(narrow[0], 7)
        real[1] = max(real[0], whole[0]) - min(real[-1], 0.5)
        narrow[-2] = int(real[1]) + int(whole[-1])
        return int(1000 * max(real[1], real[0])) + int(narrow[0]) + int(min(whole[1], 10**9))

    def arguments() -> list[Any]:
        return [np.array([5, 9]), np.array([-2.75, 3.0]), np.array([4, -6], np.int32)]

    compiled, plain = arguments(), arguments()
    assert jit.call(folded, "a sum", *compiled) == folded(*plain)
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours.tolist() == theirs.tolist()
