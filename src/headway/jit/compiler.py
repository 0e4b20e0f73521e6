"""The compiler: Numba, taught to know views and to optimize each entry point once.

By itself Numba optimizes every function together with all that it calls, generates machine code for
it, and does so again for each of its callers. Here a function that entry points call, a *part*, is
only translated to LLVM's language, once. An entry point is linked with its parts, and the whole is
optimized and becomes machine code. docs/decisions/0021-views-and-parts.md has the figures.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import binding, ir
from numba import _dynfunc, types
from numba.core import cgutils, serialize
from numba.core.callconv import CPUCallConv
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUContext
from numba.core.dispatcher import _FunctionCompiler
from numba.core.ir import Assign, Expr
from numba.core.lowering import Lower
from numba.core.pythonapi import PythonAPI
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate
from numba.core.typing.templates import signature as numba_signature
from numba.extending import (
    infer_getattr,
    lower_builtin,
    lower_cast,
    lower_getattr_generic,
    models,
    register_model,
)

from headway.jit import ResultError, shortcuts
from headway.jit.code import Code
from headway.jit.views import (
    Columns,
    MissingColumnError,
    ReadOnly,
    Signature,
    View,
    column_key,
    fields_of,
)

_WORD = ir.IntType(64)
_TABLE = _WORD.as_pointer()


def compile_code(function: Callable[..., Any], signature: Signature, **options: bool) -> Code:
    """Compile an entry point for one signature.

    Raises:
        Exception: What Numba raises for a function that it cannot compile.
        ResultError: It does not return what the signature says.
    """
    returns, arguments = numba_type(signature.returns), map(numba_type, signature.arguments)
    dispatcher = PartDispatcher(function, options)
    result = dispatcher.compile_part(returns(*arguments))
    if returns in (types.int64, types.boolean):
        for kind in _returned_types(result.type_annotation):
            whole = isinstance(types.unliteral(kind), types.Integer | types.Boolean)
            if not whole or getattr(kind, "literal_value", 0) >= 2**63:
                raise ResultError(str(kind))
    return _machine_code(result)


def _returned_types(annotation: Any) -> Iterator[Any]:
    """Yield the types of what a function returns, before Numba converts it."""
    for block in annotation.blocks.values():
        for assignment in block.find_insts(Assign):
            expression = assignment.value
            if isinstance(expression, Expr) and expression.op == "cast":
                yield annotation.typemap[expression.value.name]


def _machine_code(result: Any) -> Code:
    """Link an entry point with all that it calls, optimize the whole and generate its code."""
    library, symbol = result.library, result.fndesc.llvm_func_name
    module = library.linked()
    called = {value.name for value in module.functions if value.is_declaration}
    allocates = {name for name in called if name.startswith("NRT_")}
    if allocates and allocates <= {"NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor"}:
        module.link_in(binding.parse_assembly(_allocator()))
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in (symbol, *_environments):
            value.linkage = "internal"
    codegen = library.codegen
    passes, builder = codegen._module_pass_manager()
    passes.run(module, builder)
    module.verify()
    called = {value.name for value in module.functions if value.is_declaration}
    foreign = ("NRT_", "numba_", "Py", "_Py")
    return Code(
        data=codegen._tm.emit_object(module),
        symbol=symbol,
        needs_numba=any(name.startswith(foreign) for name in called),
        environments=_used_environments(module),
    )


_environments: dict[str, Any] = {}
"""Python objects that a part may refer to, by the name of the variable with their address."""


def _used_environments(module: Any) -> dict[str, Any]:
    """Return those of the environments that the code of a module refers to: hardly ever any."""
    counts = Counter(re.findall(r"@(_ZN08NumbaEnv[\w.$]+)", str(module)))
    return {name: _environments[name] for name, count in counts.items() if count > 1}


def _allocator() -> str:
    """Return the two functions of Numba's runtime by which arrays are made and given back.

    Numba's own need the rest of Numba. Arrays that Python never sees can do with these.
    """
    byte, count = ir.IntType(8).as_pointer(), ir.IntType(32)
    info = ir.LiteralStructType([_WORD, byte, byte, byte, _WORD])  # as in Numba's nrt.cpp
    header = 64  # bytes, enough for it
    module = ir.Module("allocator")
    malloc = ir.Function(module, ir.FunctionType(byte, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), "free")

    allocate = ir.Function(
        module, ir.FunctionType(byte, [_WORD, count]), "NRT_MemInfo_alloc_aligned"
    )
    builder = ir.IRBuilder(allocate.append_basic_block())
    size, alignment = allocate.args[0], builder.zext(allocate.args[1], _WORD)
    room = builder.add(size, builder.add(alignment, _WORD(header)))
    block = builder.call(malloc, [room])
    with builder.if_then(builder.icmp_unsigned("==", block, byte(None)), likely=False):
        builder.ret(block)
    start = builder.add(builder.ptrtoint(block, _WORD), _WORD(header))
    beyond = builder.urem(start, alignment)
    data = builder.inttoptr(builder.add(start, builder.sub(alignment, beyond)), byte)
    fields = builder.bitcast(block, info.as_pointer())
    for index, value in enumerate((_WORD(1), byte(None), byte(None), data, size)):
        builder.store(value, builder.gep(fields, [count(0), count(index)]))
    builder.ret(block)

    release = ir.Function(module, ir.FunctionType(ir.VoidType(), [byte]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(release.append_basic_block())
    builder.call(free, list(release.args))
    builder.ret_void()
    return str(module)


def start_runtime() -> None:
    """Make the functions of Numba that compiled code may call known to LLVM."""
    cpu_target.target_context.refresh()
    numba.core.runtime.rtsys.initialize(cpu_target.target_context)


def raised(address: int | None) -> Exception:
    """Return the exception that compiled code left at an address, with where it was raised."""
    if not address:
        return RuntimeError("compiled code failed")

    class Raised(ctypes.Structure):
        _fields_ = (
            ("data", ctypes.c_void_p),
            ("size", ctypes.c_int32),
            ("values", ctypes.c_void_p),
            ("unwrap", ctypes.c_void_p),
            ("dynamic", ctypes.c_int32),
        )

    record = Raised.from_address(address)
    pickled = ctypes.string_at(record.data, record.size)
    values: tuple[Any, ...] = ()
    if record.dynamic > 0:
        values = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(record.unwrap)(record.values)
    kind, arguments, where = serialize.runtime_build_excinfo_struct(pickled, values)
    error: Exception = kind(*(arguments or ()))
    error.compiled_from = where  # the function, its file and the line
    return error


class PartLibrary(JITCodeLibrary):
    """The LLVM code of a part, neither optimized as a whole nor compiled by itself."""

    def finalize(self) -> None:
        """Do nothing until the code is linked."""
        self._finalized = True

    def linked(self) -> Any:
        """Return a module with all that this one calls."""
        others: dict[Any, None] = {}
        parts, reached = [self], {self}
        for part in parts:
            for library in part._linking_libraries:
                if not isinstance(library, PartLibrary):
                    others[library] = None
                elif library not in reached:
                    reached.add(library)
                    parts.append(library)
        module = self._final_module.clone()
        for part in parts[1:]:
            module.link_in(part._final_module, preserve=True)
        for other in others:
            module.link_in(other._get_module_for_linking(), preserve=True)
        return module

    def _get_module_for_linking(self) -> Any:
        """Return the module for a function that is compiled in Numba's own way."""
        if self._shared_module is None:
            self._shared_module = self.linked()
            for value in self._shared_module.functions:
                if not value.is_declaration and value.linkage == binding.Linkage.external:
                    value.linkage = "linkonce_odr"
        return self._shared_module


class LocatedLowering(Lower):
    """Notes which line is being translated."""

    def lower_inst(self, inst: Any) -> None:
        """Translate an instruction."""
        self.builder.location = inst.loc, self.func_ir.func_id.func_name
        super().lower_inst(inst)


class LocatedErrors(CPUCallConv):
    """Gives errors that Numba leaves without a line, such as a bad index, that of their code."""

    def return_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        """Leave a function with an error."""
        if loc is None:
            loc, func_name = getattr(builder, "location", (None, None))
        super().return_user_exc(builder, exc, exc_args, loc, func_name)


class ToStandardError(PythonAPI):
    """Has compiled code print on standard error: standard output is for results."""

    def sys_write_stdout(self, fmt: Any, *args: Any) -> Any:
        """Print."""
        kind = ir.FunctionType(ir.VoidType(), [self.cstring], var_arg=True)
        function = self._get_function(kind, name="PySys_FormatStderr")
        return self.builder.call(function, (fmt, *args))


class LocatedContext(shortcuts.Unrefreshed, CPUContext):
    """Numba's target, with errors that have lines."""

    _sizes: ClassVar[dict[Any, int]] = {}

    def get_abi_sizeof(self, ty: Any) -> int:
        """Return the size of a type of LLVM's, which takes it a module of its own."""
        if ty not in self._sizes:
            self._sizes[ty] = super().get_abi_sizeof(ty)
        return self._sizes[ty]

    def get_python_api(self, builder: Any) -> ToStandardError:
        """Return how Python's own functions are called."""
        return ToStandardError(self, builder)

    @property
    def call_conv(self) -> LocatedErrors:
        """How functions return."""
        return LocatedErrors(self)


cpu_target.target_context.__class__ = LocatedContext


@register_pass(mutates_CFG=True, analysis_only=False)
class PartLowering(NativeLowering):
    """Translates a part to LLVM's language and leaves it at that."""

    _name = "part_lowering"

    @property
    def lowering_class(self) -> Any:
        """What translates."""
        return LocatedLowering

    def run_pass(self, state: Any) -> bool:
        """Translate."""
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        name = lowered.fndesc.qualname.split(".")[-1]
        # What callers refer to, though it cannot be called from Python.
        function = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )
        state.library._ensure_finalized()
        _environments[state.targetctx.get_env_name(lowered.fndesc)] = lowered.env
        state.targetctx.insert_user_function(function, lowered.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=function)
        return True


class PartPipeline(CompilerBase):
    """Numba's passes with another last one."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (PartLowering if step is NativeLowering else step, text) for step, text in passes.passes
        ]
        passes.finalize()
        return [passes]


class PartFlags(Flags):
    """Numba's options of a compilation, compared quickly: it does so for every operator."""

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartFlags) and self._values == other._values


class PartCompiler(_FunctionCompiler):
    """Compiles with `PartFlags`."""

    def _customize_flags(self, flags: Any) -> Any:
        return PartFlags(flags)


class PartDispatcher(CPUDispatcher):
    """Compiles a part once for all kinds of integers."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """Compile nothing yet."""
        wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        fixed = {"nopython": True, "nogil": True, "error_model": "numpy"}
        super().__init__(function, {}, fixed | wrappers | options, PartPipeline)
        old = self._compiler
        self._compiler = PartCompiler(
            function, self.targetdescr, old.targetoptions, old.locals, old.pipeline_class
        )

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Let a caller's integers be widened."""
        wide = {name: self._taken(kind) for name, kind in kws.items()}
        return super().get_call_template([self._taken(kind) for kind in args], wide)

    def _taken(self, kind: Any) -> Any:
        """Return what is taken for an argument.

        Headway's own parts that policies call do not write to the cluster. So they take it as the
        engine does, and are not compiled once more for policies.
        """
        if isinstance(kind, ViewType) and self.py_func.__module__.startswith("headway."):
            return _view_type(kind.view)
        return _widened(kind)

    def numba_type(self) -> Any:
        """Return the type of a reference to the function."""
        return types.Dispatcher(self)

    def compile_part(self, signature: Any) -> Any:
        """Return what the compilation for one signature gave."""
        self.compile(signature)
        return self.overloads[tuple(signature.args)]


def _widened(kind: Any) -> Any:
    kind = types.unliteral(kind)
    if isinstance(kind, types.Integer) and kind.bitwidth < 64:
        return types.int64
    return kind


_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean, None: types.void}


def numba_type(kind: Any) -> Any:
    """Return Numba's type for what a signature or a view's field says."""
    if isinstance(kind, np.dtype):
        return _array_type(kind)
    if isinstance(kind, ReadOnly):
        return _view_type(kind.view, read_only=True)
    if kind is Columns:
        return _columns_type
    if isinstance(kind, type) and issubclass(kind, View):
        return _view_type(kind)
    return _SCALARS[kind]


class ReadOnlyRecord(types.Record):
    """A record of an array that is read-only."""

    mutable = False

    def __init__(self, record: types.Record) -> None:
        """Take the fields of a record."""
        fields: Any = [(name, field._asdict()) for name, field in record.fields.items()]
        super().__init__(fields, record.size, record.aligned)


register_model(ReadOnlyRecord)(models.RecordModel)


@cache
def _array_type(dtype: np.dtype[Any], read_only: bool = False) -> Any:
    item = numba.from_dtype(dtype)
    if read_only and isinstance(item, types.Record):
        item = ReadOnlyRecord(item)
    array_type = types.Array(item, 1, "C", readonly=read_only)
    shortcuts.index_quickly(array_type)
    return array_type


class ViewType(types.Type):
    """A view: the address of its table."""

    def __init__(self, view: type[View], read_only: bool) -> None:
        """Name it after its class."""
        self.view, self.read_only = view, read_only
        super().__init__(f"{'read-only ' * read_only}{view.__module__}.{view.__qualname__}")

    def field_type(self, kind: Any) -> Any:
        """Return the type of a field, given what the view's class says of it."""
        if isinstance(kind, np.dtype):
            return _array_type(kind, self.read_only)
        if kind is Columns:
            return _columns_type
        return _view_type(kind, self.read_only)


_view_types: dict[tuple[type[View], bool], ViewType] = {}


def _view_type(view: type[View], read_only: bool = False) -> ViewType:
    if (view, read_only) not in _view_types:
        _view_types[view, read_only] = ViewType(view, read_only)
    return _view_types[view, read_only]


@lower_cast(ViewType, ViewType)
def _pass_on(context: Any, builder: Any, given: Any, taken: Any, table: Any) -> Any:
    return table


@register_model(ViewType)
class _ViewModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _TABLE)


@infer_getattr
class _ViewFields(AttributeTemplate):
    key = ViewType

    def generic_resolve(self, view: ViewType, name: str) -> Any:
        """Return the type of a field."""
        kind = fields_of(view.view).get(name)
        if isinstance(kind, Signature):
            return types.BoundFunction(_method(view, name, kind), view)
        return None if kind is None else view.field_type(kind)


def _load(builder: Any, table: Any, index: int) -> Any:
    """Load a word of a table, which never changes while compiled code runs."""
    value = builder.load(builder.gep(table, [ir.IntType(32)(index)]))
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


def _index(view: ViewType, name: str) -> int:
    return 2 * list(fields_of(view.view)).index(name)


@lower_getattr_generic(ViewType)
def _field(context: Any, builder: Any, view: ViewType, table: Any, name: str) -> Any:
    kind, index = fields_of(view.view)[name], _index(view, name)
    if isinstance(kind, Signature):
        return table
    address = _load(builder, table, index)
    if not isinstance(kind, np.dtype):
        return builder.inttoptr(address, _TABLE)
    array_type = view.field_type(kind)
    return _array(context, builder, array_type, kind, address, _load(builder, table, index + 1))


def _array(
    context: Any,
    builder: Any,
    array_type: Any,
    kind: np.dtype[Any],
    address: Any,
    length: Any,
) -> Any:
    """Return an array of which the address and the length are known."""
    model = context.data_model_manager[array_type]
    item = context.get_data_type(array_type.dtype).as_pointer()
    size = _WORD(kind.itemsize)
    nobody = ir.IntType(8).as_pointer()(None)
    values = {
        "meminfo": nobody,
        "parent": nobody,
        "nitems": length,
        "itemsize": size,
        "data": builder.inttoptr(address, item),
        "shape": cgutils.pack_array(builder, [length]),
        "strides": cgutils.pack_array(builder, [size]),
    }
    array = model.get_value_type()(ir.Undefined)
    for position, field in enumerate(model._fields):
        array = builder.insert_value(array, values[field], position)
    return array


class ColumnsType(types.Type):
    """Columns by name: the address of their table."""


_columns_type = ColumnsType("Columns")


@register_model(ColumnsType)
class _ColumnsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _TABLE)


@infer_getattr
class _ColumnsByName(AttributeTemplate):
    key = ColumnsType

    def generic_resolve(self, columns: ColumnsType, name: str) -> Any:
        """Return the type of a column, of which there may be any."""
        return _column_type


_FLOATS = np.dtype(np.float64)
_column_type = _array_type(_FLOATS, read_only=True)


@lower_getattr_generic(ColumnsType)
def _column(context: Any, builder: Any, columns: ColumnsType, table: Any, name: str) -> Any:
    """Look for a column in the table; it is an error if it is not there."""
    at = cgutils.alloca_once_value(builder, _WORD(-1))
    with cgutils.for_range(builder, _load(builder, table, 0)) as loop:
        first = builder.add(builder.mul(loop.index, _WORD(3)), _WORD(1))
        key = builder.load(builder.gep(table, [first]))
        with builder.if_then(builder.icmp_signed("==", key, _WORD(column_key(name)))):
            builder.store(first, at)
            loop.do_break()
    found = builder.load(at)
    with cgutils.if_unlikely(builder, builder.icmp_signed("<", found, _WORD(0))):
        context.call_conv.return_user_exc(builder, MissingColumnError, (name,))
    address = builder.load(builder.gep(table, [builder.add(found, _WORD(1))]))
    length = builder.load(builder.gep(table, [builder.add(found, _WORD(2))]))
    return _array(context, builder, _column_type, _FLOATS, address, length)


_methods: dict[tuple[ViewType, str], type[AbstractTemplate]] = {}


def _method(view: ViewType, name: str, declared: Signature) -> type[AbstractTemplate]:
    """Return how a function among a view's fields is called: by its address."""
    if (view, name) in _methods:
        return _methods[view, name]
    returns, arguments = numba_type(declared.returns), map(numba_type, declared.arguments)
    index = _index(view, name)
    wanted = numba_signature(returns, *arguments, recvr=view)

    class Method(AbstractTemplate):
        key = (view, name)

        def generic(self, args: Any, kws: Any) -> Any:
            return wanted

    @lower_builtin((view, name), view, types.VarArg(types.Any))
    def call(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        convention = context.call_conv
        kind = convention.get_function_type(returns, wanted.args)
        table, *rest = values
        pointer = builder.inttoptr(_load(builder, table, index), kind.as_pointer())
        status, result = convention.call_function(builder, pointer, returns, wanted.args, rest)
        with cgutils.if_unlikely(builder, status.is_error):
            builder.store(_WORD(1), builder.gep(table, [ir.IntType(32)(index + 1)]))
            convention.return_status_propagate(builder, status)
        return result

    _methods[view, name] = Method
    return Method
