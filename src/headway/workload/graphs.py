"""Graph files: the JSON of a job's iteration, read and written."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.graph import DEFAULT_CHANNEL, Graph, Message, Task
from headway.domain.limits import LONGEST_NS, MAX_BYTES, MAX_GPUS, scaled, whole
from headway.domain.models import MEBIBYTE
from headway.files import STANDARD, make_folder, open_input, open_output
from headway.results.parquet import read_parquet_column

MAX_FILE_BYTES = 2**27
"""The largest graph file: 128 MB."""

_NANOSECONDS = 1e6
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WORDS = {"None": "null", "True": "true", "False": "false"}
_QUOTED_OR_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:None|True|False)\b""")


def read_graph(path: str | os.PathLike[str]) -> Graph:
    """Read the graph of a job's iteration from a JSON file, or from standard input for `-`."""
    return GraphFile.read(path).graph


def write_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as JSON; `-` is standard output."""
    content = _content(graph)
    with open_output(path) as stream:
        stream.write(content)


@dataclass(frozen=True)
class GraphFile:
    """A graph file that was read, of which only the number of ranks has been looked at."""

    source: str
    ranks: int
    document: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> GraphFile:
        """Read a file; its entries are checked when the graph is made."""
        source = "standard input" if os.fspath(path) == STANDARD else os.fspath(path)
        with open_input(path) as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        try:
            document = _document(content)
            _check_keys(document, {"ranks", "tasks", "messages"}, {"ranks", "tasks"}, "")
            return cls(source, whole(document["ranks"], "ranks", 1, MAX_GPUS), document)
        except InputError as error:
            raise _in_json_words(error).at(source, error.line, error.column) from None

    @cached_property
    def graph(self) -> Graph:
        """The graph."""
        try:
            tasks = _list(self.document["tasks"], "tasks")
            messages = _list(self.document.get("messages", []), "messages")
            everyone = tuple(range(self.ranks))
            return Graph(
                self.ranks,
                [_task(entry, index, everyone) for index, entry in enumerate(tasks)],
                [_message(entry, index, everyone) for index, entry in enumerate(messages)],
            )
        except InputError as error:
            where = None if error.field is None else error.field.replace("buffer_bytes", "mb")
            problem = _in_json_words(error).problem
            raise InputError(problem, field=where, source=self.source) from None


@dataclass(frozen=True)
class GraphFiles:
    """The graph files that a workload's table names, each of them read once."""

    folder: str
    """Paths in the table are relative to this folder."""
    files: dict[str, GraphFile] = field(default_factory=dict)

    def graph(self, path: str, gpus: int) -> Graph:
        """Return the graph of a row of the table, which has this many GPUs."""
        try:
            if path == STANDARD:
                raise InputError("must be a file.", source=STANDARD)
            if path not in self.files:
                self.files[path] = GraphFile.read(os.path.join(self.folder, path))
            found = self.files[path]
            if found.ranks == gpus:
                return found.graph
        except InputError as error:
            raise InputError(str(error), field="graph") from None
        raise InputError(
            f"must be {found.ranks:,}, the ranks of {shown(path)}, not {gpus:,}.", field="gpus"
        )


@contextmanager
def graphs_beside(
    graphs: Collection[Graph], table: str | os.PathLike[str]
) -> Iterator[dict[Graph, str]]:
    """Write graphs beside a workload's table, and yield the path of each, relative to its folder.

    The block writes the table. A file's name follows from its content, so no other table's graph
    is replaced, and an old table stays valid until the new one is in place. Then the files are
    removed that only the old one named; if the new one is not written, those that were new.
    """
    if os.fspath(table) == STANDARD:
        if graphs:
            raise InputError(
                "jobs with graphs cannot be written to standard output: the graphs are files "
                "beside the table; give a file.",
                source="standard output",
            )
        yield {}
        return
    folder = Path(table).with_suffix(".graphs")
    if not graphs and not folder.is_dir():
        yield {}
        return
    is_new = not folder.exists()
    make_folder(folder)
    added: list[Path] = []
    names: dict[Graph, str] = {}
    with _locked(folder):
        before: set[str] = set()
        with suppress(*_UNREADABLE):
            before = _graphs_named_in(Path(table))
        try:
            for graph in graphs:
                content = _content(graph)
                path = _path_for(content, folder)
                if not path.exists():
                    added.append(path)
                    with open_output(path) as stream:
                        stream.write(content)
                names[graph] = f"{folder.name}/{path.name}"
            yield names
        except BaseException:
            for path in added:
                path.unlink(missing_ok=True)
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        _remove_unused(before - {*names.values()}, folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from writing to a folder of graphs, where the file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _path_for(content: bytes, folder: Path) -> Path:
    """Return the file that has this content, or will have; one that was edited is left alone."""
    path = folder / f"{_digest(content)}.json"
    for number in count(2):
        if not path.exists() or (path.is_file() and path.read_bytes() == content):
            break
        path = folder / f"{_digest(content)}-{number}.json"
    return path


_UNREADABLE = (OSError, ValueError, csv.Error, InputError)
"""What a file raises that is no table of jobs."""


def _graphs_named_in(table: Path) -> set[str]:
    """Return the graph files that a table of jobs names; none if there is no such table."""
    if not table.is_file():
        return set()
    if table.suffix == ".parquet":
        return {*read_parquet_column(str(table), "graph")}
    with table.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        return {row["graph"] for row in rows} if "graph" in (rows.fieldnames or ()) else set()


def _remove_unused(names: set[str], folder: Path) -> None:
    """Remove files of graphs that no table beside them names and that are as they were written."""
    tables = [*folder.parent.glob("*.csv"), *folder.parent.glob("*.parquet")] if names else []
    with suppress(*_UNREADABLE):
        for name in names.difference(*map(_graphs_named_in, tables)):
            path = folder.parent / (name or "")
            if path.parent == folder and path.stem == _digest(path.read_bytes()):
                path.unlink()


class _Object(dict[str, Any]):
    """A JSON object that remembers a repeated key."""

    repeated: str | None = None

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> _Object:
        made = cls()
        for key, value in pairs:
            if key in made:
                made.repeated = key
            made[key] = value
        return made


def _document(content: bytes) -> _Object:
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"longer than {MAX_FILE_BYTES:,} bytes; a graph file is shorter.")
    try:
        text = content.removeprefix(_BYTE_ORDER_MARK).decode()
        document = json.loads(text, object_pairs_hook=_Object.of)
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: byte 0x{content[error.start]:02x}; a graph is a JSON file."
        ) from None
    except json.JSONDecodeError as error:
        problem = error.msg[0].lower() + error.msg[1:]
        raise InputError(f"not JSON: {problem}.", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise InputError("not a graph: objects or lists are nested too deeply.") from None
    except ValueError:
        raise InputError("not a graph: a number has thousands of digits.") from None
    if not isinstance(document, _Object):
        raise InputError(f"must be an object with ranks and tasks, not {_named(document)}.")
    return document


def _task(entry: object, index: int, everyone: tuple[int, ...]) -> Task:
    known = {"name", "ranks", "ms", "after"}
    label, values = _entry(entry, "task", index, known, {"name", "ms"})
    return Task(
        values["name"],
        _list(values["ranks"], f"{label}, ranks") if "ranks" in values else everyone,
        scaled(values["ms"], _NANOSECONDS, f"{label}, ms", 1, LONGEST_NS, "milliseconds"),
        _list(values.get("after", []), f"{label}, after"),
    )


def _message(entry: object, index: int, everyone: tuple[int, ...]) -> Message:
    known = {"name", "kind", "groups", "mb", "channel", "after"}
    label, values = _entry(entry, "message", index, known, {"name", "kind", "mb"})
    groups: list[Any] = [everyone]
    if "groups" in values:
        where = f"{label}, groups"
        groups = [_list(group, where) for group in _list(values["groups"], where)]
    return Message(
        values["name"],
        values["kind"],
        groups,
        scaled(values["mb"], MEBIBYTE, f"{label}, mb", 0, MAX_BYTES, "MB"),
        values.get("channel", DEFAULT_CHANNEL),
        _list(values.get("after", []), f"{label}, after"),
    )


def _entry(
    entry: object, what: str, index: int, known: set[str], required: set[str]
) -> tuple[str, Mapping[str, Any]]:
    """Return the label of an entry in error messages, and its values."""
    label = f"{what}s[{index}]"
    if not isinstance(entry, _Object):
        raise InputError(f"must be an object, not {_named(entry)}.", field=label)
    name = entry.get("name")
    if isinstance(name, str) and name:
        label = f"{what} {shown(name)}"
    _check_keys(entry, known, required, label)
    if not isinstance(name, str) or not name:
        raise InputError(f"must be a non-empty string, not {_named(name)}.", field=f"{label}, name")
    return label, entry


def _check_keys(found: _Object, known: set[str], required: set[str], label: str) -> None:
    """Refuse unknown, repeated and missing keys."""
    where = label or None
    for key in found:
        if key not in known:
            raise InputError(f"unknown key {shown(key)}.{did_you_mean(key, known)}", field=where)
    if found.repeated is not None:
        raise InputError(f"the key {shown(found.repeated)} is repeated; give it once.", field=where)
    for key in sorted(required - found.keys()):
        raise InputError(f"the key {key!r} is missing.", field=where)


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"must be a list, not {_named(value)}.", field=where)
    return value


def _named(value: object) -> str:
    """Name a value that is not what it should be."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return shown(value)


def _in_json_words(error: InputError) -> InputError:
    """Return an error that shows values as JSON writes them: null, true and false."""
    problem = _QUOTED_OR_WORD.sub(lambda found: _WORDS.get(found[0], found[0]), error.problem)
    return InputError(problem, field=error.field)


def _content(graph: Graph) -> bytes:
    """Return the text of a graph's file, which is not longer than one that is read."""
    content = bytearray()
    for text in _lines(graph):
        content += text.encode()
        if len(content) > MAX_FILE_BYTES:
            raise InputError(
                f"the graph's file would be longer than {MAX_FILE_BYTES:,} bytes; {graph!r} is "
                "too large."
            )
    return bytes(content)


def _lines(graph: Graph) -> Iterator[str]:
    """Yield the text of a graph's file: a line for each entry."""
    everyone = tuple(range(graph.ranks))
    yield f'{{\n  "ranks": {graph.ranks},\n  "tasks": ['
    for number, task in enumerate(graph.tasks):
        values: dict[str, object] = {"name": task.name}
        if tuple(sorted(task.ranks)) != everyone:
            values["ranks"] = task.ranks
        values["ms"] = task.duration_ns / _NANOSECONDS
        yield _line(values, task.after, number)
    yield "\n  ]"
    if graph.messages:
        yield ',\n  "messages": ['
        for number, message in enumerate(graph.messages):
            values = {"name": message.name, "kind": message.kind}
            if [tuple(sorted(group)) for group in message.groups] != [everyone]:
                values["groups"] = message.groups
            values["mb"] = message.buffer_bytes / MEBIBYTE
            if message.channel != DEFAULT_CHANNEL:
                values["channel"] = message.channel
            yield _line(values, message.after, number)
        yield "\n  ]"
    yield "\n}\n"


def _line(values: dict[str, object], after: tuple[str, ...], number: int) -> str:
    if after:
        values["after"] = after
    return f"{',' * (number > 0)}\n    {json.dumps(values, ensure_ascii=False)}"
