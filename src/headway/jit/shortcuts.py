"""Shortcuts through Numba's front end, which takes most of the time of a first start.

Each gives what Numba itself would give, sooner. Without them everything works, at twice the cost:
docs/decisions/0021-views-and-parts.md has the figures.
"""

from __future__ import annotations

import itertools
import operator
from types import SimpleNamespace
from typing import Any, ClassVar

from numba import types
from numba.core import cgutils, errors, ir, targetconfig
from numba.core.imputils import lower_builtin
from numba.core.registry import cpu_target
from numba.core.typing.context import Context
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.cpython.builtins import do_minmax
from numba.np.arrayobj import fix_integer_index, load_item, store_item

# Numba fails inside, and recovers, thousands of times, with a message in colours for each.
errors._termcolor_inst = SimpleNamespace(
    **dict.fromkeys(("code", "errmsg", "filename", "indicate", "highlight", "reset"), str)
)

_PLAIN = (types.Number, types.Boolean, types.Array, types.Record)

_resolve_call = types.Function.get_call_type


def _get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """Return the signature of a call of a built-in function, found once for the same types.

    Numba tries dozens of declarations, one after another, for every `+` and every index.
    """
    if kws or not all(isinstance(kind, _PLAIN) for kind in args):
        return _resolve_call(self, context, args, kws)
    known = vars(self).setdefault("_headway_known", {})
    key = tuple(args), targetconfig.ConfigStack.top_or_none()
    if key not in known:
        known[key] = _resolve_call(self, context, args, kws)
    return known[key]


types.Function.get_call_type = _get_call_type


class Unrefreshed:
    """A context that looks for new declarations only if there are any.

    Numba's contexts do so, imports and all, for each function that they compile, and each time
    that they look for something in vain.
    """

    _registries: dict[Any, Any]
    _declarations = -1

    def refresh(self) -> None:
        """Look for new declarations."""
        if self._count() != self._declarations:
            super().refresh()
            type(self)._declarations = self._count()  # Numba makes copies of a context.

    def _count(self) -> int:
        lists = (vars(registry).values() for registry in self._registries)
        return sum(map(len, itertools.chain.from_iterable(lists)))


class _TypingContext(Unrefreshed, Context):
    """Numba's context of types, in which what is read-only is so in every way."""

    def resolve_setattr(self, target: Any, attr: Any, value: Any) -> Any:
        """Return the signature of setting an attribute."""
        _check_writable(target)
        return super().resolve_setattr(target, attr, value)

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Return the signature of setting an item."""
        _check_writable(target)
        return super().resolve_setitem(target, index, value)

    def resolve_static_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Return the signature of setting an item that is known when it is compiled."""
        _check_writable(target)
        return super().resolve_static_setitem(target, index, value)


def _check_writable(kind: Any) -> None:
    written = isinstance(kind, types.Array | types.Record)
    if getattr(kind, "read_only", written and not kind.mutable):
        raise errors.NumbaTypeError("Cannot modify what is readonly")


cpu_target.typing_context.__class__ = _TypingContext


def _rec_list_vars(self: Any, value: Any) -> list[Any]:
    """Return the variables in a part of an instruction."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if kind is dict:
        return _of_all(self, value.values())
    if kind is tuple or kind is list:
        return _of_all(self, value)
    return value.list_vars() if isinstance(value, ir.Inst) else []


def _of_all(self: Any, values: Any) -> list[Any]:
    found = []
    for value in values:
        kind = type(value)
        if kind is ir.Var:
            found.append(value)
        elif kind not in _WITHOUT_VARIABLES:
            found += _rec_list_vars(self, value)
    return found


_WITHOUT_VARIABLES = {ir.Loc, ir.Const, ir.Global, ir.FreeVar, ir.Arg, str, int, float, type(None)}
ir.Inst._rec_list_vars = _rec_list_vars


class _OfNumbers(AbstractTemplate):
    """The type of a call that Numba would compile a function of its own for.

    For its target, it comes before the declarations for all targets.
    """

    metadata: ClassVar[dict[str, str]] = {"target": "cpu"}


@infer_global(int)
class _Int(_OfNumbers):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 1 and not kws and isinstance(args[0], types.Integer | types.Float):
            kind = types.unliteral(args[0])
            return signature(kind if isinstance(kind, types.Integer) else types.intp, kind)
        return None


@infer_global(max)
@infer_global(min)
class _MinMax(_OfNumbers):
    def generic(self, args: Any, kws: Any) -> Any:
        if kws or len(args) != 2 or not all(isinstance(kind, types.Number) for kind in args):
            return None
        kinds = tuple(map(types.unliteral, args))
        common = self.context.unify_types(*kinds)
        return None if common is None else signature(common, *kinds)


@lower_builtin(int, types.Integer)
@lower_builtin(int, types.Float)
def _int(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    if context.enable_boundscheck and isinstance(sig.args[0], types.Float):
        # Not the opposite, as NaN is neither less nor more.
        least, end = (args[0].type(limit) for limit in (-(2.0**63), 2.0**63))
        enough = builder.fcmp_ordered(">=", args[0], least)
        inside = builder.and_(enough, builder.fcmp_ordered("<", args[0], end))
        with cgutils.if_unlikely(builder, builder.not_(inside)):
            text = "int() of a number that is too large, infinite or NaN"
            context.call_conv.return_user_exc(builder, OverflowError, (text,))
    return context.cast(builder, args[0], sig.args[0], sig.return_type)


@lower_builtin(max, types.Number, types.Number)
def _max(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return do_minmax(context, builder, sig.args, args, operator.gt)


@lower_builtin(min, types.Number, types.Number)
def _min(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return do_minmax(context, builder, sig.args, args, operator.lt)


def index_quickly(array_type: Any) -> None:
    """Translate indices into an array of one dimension, contiguous, in a few instructions."""

    @lower_builtin(operator.getitem, array_type, types.Integer)
    def getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig, args)
        return load_item(context, builder, array_type, pointer)

    @lower_builtin(operator.setitem, array_type, types.Integer, types.Any)
    def setitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig, args)
        value = context.cast(builder, args[2], sig.args[2], array_type.dtype)
        return store_item(context, builder, array_type, value, pointer)


def _pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    model = context.data_model_manager[sig.args[0]]
    array, index = args[:2]
    data = builder.extract_value(array, model.get_field_position("data"))
    length = builder.extract_value(array, [model.get_field_position("shape"), 0])
    index = fix_integer_index(context, builder, sig.args[1], index, length)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, index, length, 0)
    return builder.gep(data, [index])
