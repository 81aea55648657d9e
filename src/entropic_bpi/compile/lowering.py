"""Lowering of kernels to LLVM IR by Numba, with shorter code for reading and writing elements of arrays.

Numba's general code for indexing also handles slices and arrays as indices. It takes a tenth of the compilation time of the
kernels. The results are the same, also for negative indices.
"""

# mypy: allow-untyped-calls, allow-untyped-defs, disallow-subclassing-any=false

from __future__ import annotations

from typing import Any

from numba.core import ir, types
from numba.core.lowering import Lower

from entropic_bpi.compile.records import is_record

# The attribute that holds the index, for each kind of instruction that reads or writes an element.
_INDEX = {"getitem": "index", "static_getitem": "index_var", ir.SetItem: "index", ir.StaticSetItem: "index_var"}


class KernelLower(Lower):
    """Numba's lowering, with records declared as ``noalias``: no other pointer refers to their memory."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        for argument in self.function.args:
            if is_record(argument.type):
                argument.add_attribute("noalias")

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if (element := self._element(expr, expr.op, "value")) is None:
            return super().lower_expr(resty, expr)
        address, dtype = element
        return self.context.cast(self.builder, self.context.unpack_value(self.builder, dtype, address), dtype, resty)

    def lower_inst(self, inst: Any) -> Any:
        if (element := self._element(inst, type(inst), "target")) is None:
            return super().lower_inst(inst)
        (address, dtype), value = element, inst.value.name
        value = self.context.cast(self.builder, self.loadvar(value), self.typeof(value), dtype)
        return self.context.pack_value(self.builder, dtype, value, address)

    def _element(self, inst: Any, form: Any, target: str) -> Any:
        """Return the address and the type of an array element, or None if Numba's general code has to handle the index."""
        if form not in _INDEX or (index := getattr(inst, _INDEX[form])) is None:
            return None
        builder, array = self.builder, getattr(inst, target)
        kind, number = self.typeof(array.name), self.typeof(index.name)
        numbers = number.types if hasattr(number, "types") else (number,)
        plain = isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned and len(numbers) == kind.ndim
        plain = plain and isinstance(kind.dtype, (types.Number, types.Boolean)) and not self.context.enable_boundscheck
        if not plain or not all(isinstance(one, types.Integer) for one in numbers):
            return None
        parts, whole, given = self.context.data_model_manager[kind], self.loadvar(array.name), self.loadvar(index.name)
        place = None
        for axis, one in enumerate(numbers):
            at = given if number is one else builder.extract_value(given, axis)
            at = self.context.cast(builder, at, one, types.intp)
            length = builder.extract_value(whole, [parts.get_field_position("shape"), axis])
            at = builder.select(builder.icmp_signed("<", at, at.type(0)), builder.add(at, length), at)
            place = at if place is None else builder.add(builder.mul(place, length), at)
        return builder.gep(builder.extract_value(whole, parts.get_field_position("data")), [place]), kind.dtype
