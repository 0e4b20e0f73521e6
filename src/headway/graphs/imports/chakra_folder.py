"""The files of a Chakra execution trace: one a rank, and the groups of ranks."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from headway.domain.errors import InputError, did_you_mean, shown
from headway.domain.limits import MAX_GPUS
from headway.files import open_input

_TRACE = re.compile(r"(?P<name>.+)\.(?P<rank>[0-9]{1,8})\.et")
_MANY_BYTES = 2**28
_FEW = 5

Groups = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TraceFolder:
    """The files of a trace by rank, and the file of its groups, if there is one."""

    files: list[str]
    groups: str | None


def find_trace(folder: str, name: str | None = None, groups: str | None = None) -> TraceFolder:
    """Return the files `NAME.RANK.et` of a folder, and its groups: `NAME.json`.

    Args:
        folder: Where the files are.
        name: The trace, if the folder has several.
        groups: Another file of groups.

    Raises:
        InputError: There is no such trace, it is not clear which, or a rank is missing.
    """
    try:
        found = sorted(os.listdir(folder))
    except NotADirectoryError:
        raise InputError(
            "is a file; give the folder that has one file NAME.RANK.et for each rank.",
            source=folder,
        ) from None
    except OSError as error:
        raise InputError(f"{error.strerror or error}.", source=folder) from error
    traces: dict[str, dict[int, str]] = {}
    for entry in found:
        match = _TRACE.fullmatch(entry)
        if match is None:
            continue
        ranks = traces.setdefault(match["name"], {})
        rank = int(match["rank"])
        if rank in ranks:
            raise InputError(
                f"'{ranks[rank]}' and '{entry}' are both for rank {rank}.", source=folder
            )
        ranks[rank] = entry
    if not traces:
        raise InputError(
            "there are no files of a trace; they are named NAME.RANK.et, such as gpt.0.et.",
            source=folder,
        )
    if name is None and len(traces) > 1:
        few = ", ".join(sorted(traces)[:_FEW])
        more = ", …" if len(traces) > _FEW else ""
        raise InputError(
            f"there are {len(traces):,} traces: {few}{more}; choose one with --name.",
            source=folder,
        )
    if name is not None and name not in traces:
        raise InputError(
            f"there is no trace {shown(name)}.{did_you_mean(name, traces)}", source=folder
        )
    chosen = next(iter(traces)) if name is None else name
    ranks = traces[chosen]
    if max(ranks) >= MAX_GPUS:
        raise InputError(
            f"'{ranks[max(ranks)]}' is for a rank above the last, {MAX_GPUS - 1:,}.",
            source=folder,
        )
    missing = next((rank for rank in range(max(ranks)) if rank not in ranks), None)
    if missing is not None:
        raise InputError(
            f"there is no file '{chosen}.{missing}.et', but one for rank {max(ranks)}; each rank "
            "from 0 on needs one.",
            source=folder,
        )
    if groups is None and (Path(folder) / f"{chosen}.json").is_file():
        groups = str(Path(folder) / f"{chosen}.json")
    return TraceFolder([str(Path(folder) / ranks[rank]) for rank in range(len(ranks))], groups)


def read_groups(path: str, ranks: int) -> Groups:
    """Return the groups of ranks in a file: a JSON object of lists, by the group's name.

    Raises:
        InputError: The file is something else, or a rank does not exist or is there twice.
    """
    with open_input(path) as stream:
        data = stream.read(_MANY_BYTES + 1)
    if len(data) > _MANY_BYTES:
        raise InputError(f"has more than {_MANY_BYTES:,} bytes.", source=path)
    try:
        content = json.loads(data)
    except UnicodeDecodeError:
        raise InputError("must be JSON: it is not UTF-8.", source=path) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"must be JSON: {error.msg}.", source=path, line=error.lineno, column=error.colno
        ) from None
    except (RecursionError, ValueError):
        raise InputError("must be a JSON object of lists of ranks.", source=path) from None
    if not isinstance(content, dict):
        raise InputError('must be a JSON object such as {"1": [0, 1]}.', source=path)
    return {name: _group(path, name, members, ranks) for name, members in content.items()}


def _group(path: str, name: str, members: object, ranks: int) -> tuple[int, ...]:
    where = f"group {shown(name)}"
    if not isinstance(members, list) or not members:
        raise InputError(
            f"must be a list of ranks, not {shown(members)}.", field=where, source=path
        )
    for rank in members:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise InputError(
                f"there is no rank {shown(rank)}; the trace has ranks 0 to {ranks - 1:,}.",
                field=where,
                source=path,
            )
    if len(set(members)) < len(members):
        raise InputError("a rank is there twice.", field=where, source=path)
    return tuple(sorted(members))
