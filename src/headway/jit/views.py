"""Views: bundles of arrays that compiled code receives as one pointer.

A view is an ordinary object whose attributes are numpy arrays, other views or functions, so that
everything runs, and can be debugged, without compilation. Compiled code sees a table of addresses
and lengths, from which it loads what it needs. So a view costs one register to pass on, however
much there is in it, and little to compile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray


class Signature(NamedTuple):
    """What an entry point returns and takes: `int`, `float`, `bool`, None (nothing) or arrays.

    An array, which has one dimension and is contiguous, is given by its dtype, a view by its class
    or, if the function must not write to its arrays, by `ReadOnly` of its class.
    """

    returns: type | None
    arguments: tuple[Any, ...]


def signature(returns: type | None, *arguments: Any) -> Signature:
    """Return the signature of an entry point."""
    return Signature(returns, arguments)


class ReadOnly(NamedTuple):
    """A view, as an argument, whose arrays compiled code may only read."""

    view: type[View]


class MissingColumnError(Exception):
    """Code reads a column that is not there."""

    def __init__(self, name: str) -> None:
        """Name the column."""
        super().__init__(f"there is no column {name!r} of numbers (live jobs have none)")
        self.name = name


def column_key(name: str) -> int:
    """Return the number by which compiled code finds a column."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class Columns:
    """Columns of float64 by name, as attributes; a view may have a field of them.

    Compiled code finds a column when it reads it, so it does not depend on which there are.
    """

    def __init__(self, columns: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep the columns, which nobody may change."""
        self._columns = {
            name: np.ascontiguousarray(values, np.float64).view()
            for name, values in columns.items()
        }
        for values in self._columns.values():
            values.flags.writeable = False
        words = [len(self._columns)]
        for name, values in self._columns.items():
            words += [column_key(name), values.ctypes.data, len(values)]
        self._table = np.array(words, np.int64)
        self.address: int = self._table.ctypes.data
        """Of the table: how many columns there are, then the key, address and length of each."""

    def __getattr__(self, name: str) -> NDArray[np.float64]:
        if name.startswith("__"):  # Copying and pickling ask for what no object has.
            raise AttributeError(name)
        try:
            return self._columns[name]
        except KeyError:
            raise MissingColumnError(name) from None


class View:
    """Base class of views, whose annotations declare their fields.

    A field is `Integers`, `Floats`, a view, `Annotated[Records, DTYPE]` for an array of records,
    `Annotated[Callable[..., Any], signature(...)]` for a compiled function, or `Columns`, none of
    them unless they are given. All are set once.
    """

    def __init__(self, **values: Any) -> None:
        """Set all fields.

        Raises:
            TypeError: A field is missing or unknown, or an array is not as declared.
        """
        declared = fields_of(type(self))
        for name, kind in declared.items():
            if kind is Columns:
                values.setdefault(name, NO_COLUMNS)
        if values.keys() != declared.keys():
            wrong = sorted(values.keys() ^ declared.keys())
            raise TypeError(f"{type(self).__name__}: missing or unknown: {', '.join(wrong)}")
        words = []
        for name, kind in declared.items():
            value = values[name]
            setattr(self, name, value)
            if isinstance(kind, np.dtype):
                if value.dtype != kind or value.ndim != 1 or not value.flags.c_contiguous:
                    raise TypeError(f"{type(self).__name__}.{name}: not a row of {kind}")
                words += [value.ctypes.data, len(value)]
            else:
                # A function is not compiled if compilation is switched off.
                words += [getattr(value, "address", 0), 0]
        self._table = np.array(words, np.int64)
        self.address: int = self._table.ctypes.data
        """Of the table: two words for each field.

        The second is the length of an array, or whether a compiled function has raised an error.
        """

    def raised(self) -> list[str]:
        """Return the fields whose compiled functions have raised an error."""
        fields = enumerate(fields_of(type(self)).items())
        return [
            name
            for index, (name, kind) in fields
            if isinstance(kind, Signature) and self._table[2 * index + 1] != 0
        ]

    @cached_property
    def read_only(self) -> Self:
        """This view with arrays that Python cannot write to."""
        changes = {}
        for name, kind in fields_of(type(self)).items():
            value = getattr(self, name)
            if isinstance(kind, np.dtype):
                changes[name] = value.view()
                changes[name].flags.writeable = False
            elif kind is not Columns and not isinstance(kind, Signature):
                changes[name] = value.read_only
        return self.replace(**changes)

    def replace(self, **changes: Any) -> Self:
        """Return a view with other values for some fields."""
        return type(self)(**{name: getattr(self, name) for name in fields_of(type(self))} | changes)


NO_COLUMNS = Columns({})

_fields: dict[type[View], dict[str, Any]] = {}


def fields_of(view: type[View]) -> dict[str, Any]:
    """Return the fields of a view: the dtype of an array, a class of views, or a signature."""
    if view not in _fields:
        _fields[view] = _declared(view)
    return _fields[view]


def _declared(view: type[View]) -> dict[str, Any]:
    fields = {}
    for name, hint in get_type_hints(view, include_extras=True).items():
        if get_origin(hint) is Annotated:
            (fields[name],) = hint.__metadata__
        elif isinstance(hint, type) and issubclass(hint, View | Columns):
            fields[name] = hint
        else:
            # NDArray[scalar] is np.ndarray[shape, np.dtype[scalar]], from numpy 2.5 on itself.
            *_, inner = get_args(hint)
            fields[name] = np.dtype(*(get_args(inner) or (inner,)))
    return fields
