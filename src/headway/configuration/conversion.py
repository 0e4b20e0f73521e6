"""Typed tables: each is a msgspec struct, and a sentence explains what does not fit it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from headway.configuration.positions import KeyPath
from headway.domain.errors import did_you_mean, shown

Number = int | float
"""A whole number stays an int, so that messages show it as it was written."""

Text = Annotated[str, msgspec.Meta(pattern=r"\S", description="a non-empty string")]

Converted = TypeVar("Converted")


class TomlTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a TOML file; a field without a default is required.

    Fields state the keys and their types. The domain checks values in the engine's units.
    """

    REFUSED: ClassVar[Mapping[str, str]] = {}
    """Keys with a sentence of their own about why they are refused."""


def given(table: TomlTable) -> dict[str, Any]:
    """Return the keys that a table has a value for, None being a missing key."""
    return {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}


class Mismatch(Exception):  # noqa: N818 (it is turned into an InputError, which users see)
    """Content does not fit its type: what is wrong, and the path of the value that is.

    Without `is_key` the value is a table or the whole document, and the problem is what it lacks.
    """

    def __init__(self, problem: str, path: KeyPath, *, is_key: bool = True) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.is_key = is_key


def convert(content: object, kind: type[Converted], path: KeyPath = ()) -> Converted:
    """Return the content, which is at `path`, as a value of the type, or raise `Mismatch`."""
    try:
        return msgspec.convert(content, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _mismatch(str(error), _Spot(path, content, inspect.type_info(kind))) from None


class _Spot(NamedTuple):
    """A part of the content, and the type that it should have."""

    path: KeyPath
    value: Any
    kind: inspect.Type


def _mismatch(text: str, root: _Spot) -> Mismatch:
    """Explain an error of msgspec: a message and a path such as `$.group[0].servers`."""
    match = re.fullmatch(r"(.*?)(?: - at (?:`key` in )?`\$(.*)`)?", text, re.DOTALL)
    assert match is not None
    message, where = match[1], match[2] or ""
    spot = _follow(where, root)
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        return _unknown(match[1], spot)
    if match := re.fullmatch(r"Object missing required field `(.*)`", message):
        return _missing(match[1], spot)
    if match := re.fullmatch(r"Expected `int` (>=|<=) (-?\d+)", message):
        bound = "at least" if match[1] == ">=" else "at most"
        return Mismatch(f"must be {bound} {int(match[2]):,}, not {shown(spot.value)}.", spot.path)
    if choices := _find(spot.kind, inspect.LiteralType):
        guess = did_you_mean(str(spot.value), map(str, choices.values))
        return Mismatch(f"unknown {spot.path[-1]} {shown(spot.value)}.{guess}", spot.path)
    if "of length >= 1" in message and not _holds_tables(spot.kind):
        return Mismatch("must not be empty.", spot.path)
    given = shown(spot.value)
    if isinstance(spot.value, list) and spot.value and isinstance(spot.value[0], dict):
        given = f"a list of tables [[{_dotted(spot.path)}]]"
    return Mismatch(f"must be {_expected(spot)}, not {given}.", spot.path)


def _follow(where: str, spot: _Spot) -> _Spot:
    """Follow msgspec's path from a spot, up to `[...]`, which is some key of a mapping."""
    for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", where.partition("[...]")[0]):
        step: str | int = key or int(index)
        if key:
            struct = _find(spot.kind, inspect.StructType)
            fields = () if struct is None else struct.fields
            kind = next((field.type for field in fields if field.encode_name == key), None)
        else:
            kind = _item_type(spot.kind, int(index))
        try:
            value = spot.value[step]
        except (KeyError, IndexError, TypeError):
            kind = None
        if kind is None:
            # Not a path after all, but part of a key that is quoted in the message.
            return spot
        spot = _Spot((*spot.path, step), value, kind)
    return spot


def _item_type(kind: inspect.Type, index: int) -> inspect.Type | None:
    """Return the type of an item of a list, or of a row with a type for each place."""
    if row := _find(kind, inspect.TupleType):
        return row.item_types[index] if index < len(row.item_types) else None
    items = _find(kind, inspect.ListType)
    return None if items is None else items.item_type


def _unknown(key: str, spot: _Spot) -> Mismatch:
    struct = _find(spot.kind, inspect.StructType)
    assert struct is not None
    path = (*spot.path, key)
    if issubclass(struct.cls, TomlTable) and key in struct.cls.REFUSED:
        return Mismatch(struct.cls.REFUSED[key], path)
    known = [field.encode_name for field in struct.fields]
    what = "table" if _is_table(spot.value.get(key)) else "key"
    return Mismatch(f"unknown {what}.{did_you_mean(key, known)}", path)


def _missing(key: str, spot: _Spot) -> Mismatch:
    struct = _find(spot.kind, inspect.StructType)
    assert struct is not None
    kind = next(field.type for field in struct.fields if field.encode_name == key)
    name = _dotted((*spot.path, key))
    if _description(kind) or not (_holds_tables(kind) or _find(kind, inspect.StructType)):
        problem = f"'{key}' is missing."
    elif _holds_tables(kind):
        problem = f"there are no tables [[{name}]]."
    else:
        problem = f"there is no table [{name}]."
    return Mismatch(problem, spot.path, is_key=False)


def _expected(spot: _Spot) -> str:
    """Return what would be right, such as `a whole number`."""
    if described := _description(spot.kind):
        return described
    name = _dotted(spot.path)
    words = []
    for kind in _branches(spot.kind):
        if _holds_tables(kind):
            words.append(f"tables [[{name}]]")
        elif isinstance(kind, inspect.StructType):
            words.append(f"a table [{name}]")
        elif isinstance(kind, (inspect.IntType, inspect.FloatType)):
            words.append("a whole number" if isinstance(kind, inspect.IntType) else "a number")
        elif isinstance(kind, inspect.StrType):
            words.append("a string")
        elif isinstance(kind, inspect.BoolType):
            words.append("true or false")
        elif isinstance(kind, inspect.ListType):
            words.append("a list")
    if "a number" in words and "a whole number" in words:
        words.remove("a whole number")
    return " or ".join(words)


Kind = TypeVar("Kind", bound=inspect.Type)


def _find(kind: inspect.Type, wanted: type[Kind]) -> Kind | None:
    return next((one for one in _branches(kind) if isinstance(one, wanted)), None)


def _branches(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types of a union, without their metadata."""
    if isinstance(kind, inspect.Metadata):
        yield from _branches(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _branches(one)
    else:
        yield kind


def _description(kind: inspect.Type) -> str | None:
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_description, kind.types)), None)
    if isinstance(kind, inspect.Metadata):
        return (kind.extra_json_schema or {}).get("description")
    return None


def _holds_tables(kind: inspect.Type) -> bool:
    items = _find(kind, inspect.ListType)
    return items is not None and _find(items.item_type, inspect.StructType) is not None


def _is_table(value: object) -> bool:
    return any(isinstance(one, dict) for one in (value if isinstance(value, list) else [value]))


def _dotted(path: KeyPath) -> str:
    """Return the name of a table as its header writes it, without indices."""
    return ".".join(step for step in path if isinstance(step, str))
