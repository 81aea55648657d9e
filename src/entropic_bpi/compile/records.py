"""Records: named tuples that compiled code receives by one pointer.

Numba passes a named tuple as one argument for each of its fields, and an array as about ten: every call in a plan of the KL
method would have some 300 arguments, which would take most of the compilation time. A class with the decorator
``by_pointer`` is passed as a pointer to its fields instead. Kernels read the fields by name. Only Python creates records,
and kernels do not assign their fields; the contents of their arrays may change.
"""

# mypy: allow-untyped-calls, allow-untyped-defs, disallow-untyped-decorators=false

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, models, register_model, typeof_impl, unbox


class _Fields(ir.LiteralStructType):  # type: ignore[misc]
    """The memory layout of a record: its fields one after the other; a field that is a record is stored in place."""


class Record(types.Type):
    """The Numba type of a record. Its name contains a digest of the class and of the types of the fields."""

    def __init__(self, instance_class: Any, fields: tuple[Any, ...]) -> None:
        self.instance_class, self.fields = instance_class, fields
        identity = instance_class.__module__, instance_class.__qualname__, instance_class._fields, *fields
        super().__init__(f"{instance_class.__name__}_{hashlib.sha256(str(identity).encode()).hexdigest()[:16]}")

    def index(self, name: str) -> int:
        return self.instance_class._fields.index(name)


def register_record(cls: type) -> None:
    """Make Numba treat the instances of a named tuple class as records."""
    typeof_impl.register(cls)(lambda value, c: Record(cls, tuple(typeof_impl(field, c) for field in value)))


@infer_getattr
class _FieldTypes(AttributeTemplate):
    key = Record

    def generic_resolve(self, record: Record, name: str) -> Any:  # type: ignore[override]
        return record.fields[record.index(name)] if name in record.instance_class._fields else None


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager: Any, record: Record) -> None:
        parts = (manager.lookup(field).get_value_type() for field in record.fields)
        fields = _Fields([part.pointee if is_record(part) else part for part in parts])
        super().__init__(manager, record, fields.as_pointer())


def is_record(part: Any) -> bool:
    """Return whether an LLVM type is that of a record."""
    return isinstance(part, ir.PointerType) and not part.is_opaque and isinstance(part.pointee, _Fields)


def _place(builder: Any, pointer: Any, index: int) -> Any:
    return builder.gep(pointer, [ir.IntType(32)(0), ir.IntType(32)(index)], inbounds=True)


@lower_getattr_generic(Record)
def _read_field(context, builder, record, pointer, name):
    index = record.index(name)
    place, field = _place(builder, pointer, index), record.fields[index]
    return impl_ret_borrowed(context, builder, field, place if isinstance(field, Record) else builder.load(place))


@unbox(Record)
def _take_record(record, instance, c):
    """Convert a named tuple: write its fields into the stack of the function that Python calls."""
    pointer = cgutils.alloca_once(c.builder, c.context.get_value_type(record).pointee)
    taken: list[Any] = []
    failed = _fill(record, instance, pointer, taken, c)

    def cleanup() -> None:
        if c.context.enable_nrt:  # Numba itself releases only the references in types of arguments that it knows
            for field, place in taken:
                c.context.nrt.decref(c.builder, field, c.builder.load(place))

    return NativeValue(pointer, cleanup=cleanup, is_error=failed)


def _fill(record, instance, pointer, taken, c):
    """Write all fields, and return whether the conversion of one of them failed."""
    failed = cgutils.false_bit
    for index, field in enumerate(record.fields):
        place, value = _place(c.builder, pointer, index), c.pyapi.tuple_getitem(instance, index)
        if isinstance(field, Record):
            field_failed = _fill(field, value, place, taken, c)
        else:
            field_failed = c.builder.call(_taker(field, c), [value, place])
            taken.append((field, place))
        failed = c.builder.or_(failed, field_failed)
    return failed


def _taker(field, c):
    """Return the function that converts fields of this type; Numba would repeat its code for every field."""
    name, module = f"take {field}", c.builder.module
    if name not in module.globals:
        pointer = c.context.get_value_type(field).as_pointer()
        taker = ir.Function(module, ir.FunctionType(ir.IntType(1), [c.pyapi.pyobj, pointer]), name)
        taker.linkage = "private"
        taker.attributes.add("noinline")
        builder = ir.IRBuilder(taker.append_basic_block())
        native = c._replace(builder=builder, pyapi=c.context.get_python_api(builder)).unbox(field, taker.args[0])
        assert native.cleanup is None
        builder.store(native.value, taker.args[1])
        builder.ret(native.is_error)
    return module.globals[name]
