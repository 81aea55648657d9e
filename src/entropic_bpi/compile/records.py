"""Records that compiled code takes by one pointer: named tuples whose fields are read where they are used.

Numba passes a named tuple to each function as all of its parts, and an array as a dozen numbers: a plan of the KL method
would take some 300 arguments in every call, which is most of what its compilation works on. A class with the decorator
``by_pointer`` is passed as a pointer to its fields instead. Kernels read the fields by name. The record itself is made by
Python, never by a kernel, and does not change; what its arrays hold may.
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
    """The fields of a record in memory, one after the other; records within a record lie in it."""


class Record(types.Type):
    """The type of a record: its class and the types of its fields, of both of which its name has a digest."""

    def __init__(self, instance_class: Any, fields: tuple[Any, ...]) -> None:
        self.instance_class, self.fields = instance_class, fields
        told = instance_class.__module__, instance_class.__qualname__, instance_class._fields, *fields
        super().__init__(f"{instance_class.__name__}_{hashlib.sha256(str(told).encode()).hexdigest()[:16]}")

    def index(self, name: str) -> int:
        return self.instance_class._fields.index(name)


def register_record(cls: type) -> None:
    """Make the instances of a class of named tuples records."""
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
    """Whether a type of LLVM is that of a record."""
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
    """Write the fields of a named tuple into memory of the function that Python calls."""
    pointer = cgutils.alloca_once(c.builder, c.context.get_value_type(record).pointee)
    taken: list[Any] = []
    failed = _fill(record, instance, pointer, taken, c)

    def cleanup() -> None:
        if c.context.enable_nrt:  # Numba gives back what it finds in the types of arguments that it knows
            for field, place in taken:
                c.context.nrt.decref(c.builder, field, c.builder.load(place))

    return NativeValue(pointer, cleanup=cleanup, is_error=failed)


def _fill(record, instance, pointer, taken, c):
    """Write all fields; whether one of them has another type."""
    failed = cgutils.false_bit
    for index, field in enumerate(record.fields):
        place, value = _place(c.builder, pointer, index), c.pyapi.tuple_getitem(instance, index)
        if isinstance(field, Record):
            wrong = _fill(field, value, place, taken, c)
        else:
            wrong = c.builder.call(_taker(field, c), [value, place])
            taken.append((field, place))
        failed = c.builder.or_(failed, wrong)
    return failed


def _taker(field, c):
    """The function that writes fields of a type into memory: one of a module, where Numba repeats it for each field."""
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
