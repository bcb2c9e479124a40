"""The inner loop of `nearest`: products of 4 vectors with 16 centroids, byte by byte, as fast as the processor can."""

import functools
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from superfeat.index.kernel import compiled

ROWS, LANES = 4, 16  # vectors and centroids of one step


@functools.cache
def has_avx2() -> bool:
    """Whether this processor has the instruction that multiplies 32 pairs of bytes and adds them in twos."""
    return bool(llvmlite.binding.get_host_cpu_features().get("avx2", False))


@functools.cache
def has_vnni() -> bool:
    """Whether it has the one that multiplies 64 pairs of bytes and adds them in fours to 16 sums."""
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(name, False) for name in ("avx2", "avx512f", "avx512vnni"))


@compiled
def products_plain(
    points: Any, first: Any, packed: Any, offset: Any, eights: Any, bias: Any, word: Any, limits: Any, tile: Any
) -> int:  # pragma: no cover
    hits = 0
    for row in range(ROWS):
        for lane in range(LANES):
            tile[row, lane] = bias[word + lane]
        for quad in range(2 * eights):
            for lane in range(LANES):
                place = offset + (quad * LANES + lane) * 4
                for axis in range(4):
                    tile[row, lane] += np.int32(points[first + row, 4 * quad + axis]) * np.int32(packed[place + axis])
        for lane in range(LANES):
            if tile[row, lane] > limits[first + row]:
                hits |= 1 << row
    return hits


@intrinsic  # type: ignore[untyped-decorator]
def products_avx2(
    typing_context: Any,
    points: Any,
    first: Any,
    packed: Any,
    offset: Any,
    eights: Any,
    bias: Any,
    word: Any,
    limits: Any,
    tile: Any,
) -> Any:
    """`products_plain` in the processor's own terms.

    Two products of bytes added in 16 bits twice are at most 4 * 127 * 63, so nothing saturates.
    """
    whole = types.int64
    return whole(points, whole, packed, whole, whole, bias, whole, limits, tile), _emit_products


BYTE, SHORT, WORD, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
BYTES, SHORTS, WORDS = ir.VectorType(BYTE, 32), ir.VectorType(SHORT, 16), ir.VectorType(WORD, 8)
WIDE = ir.VectorType(WORD, LANES)
COLUMNS = LANES // 8  # vectors of eight sums


def _emit_products(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Sums begin at the bias, take in eight dimensions a round, and are compared with each vector's limit."""

    def data(number: int) -> Any:
        return context.make_array(signature.args[number])(context, builder, arguments[number]).data

    _, first, _, offset, eights, _, word, _, _ = arguments
    points = builder.bitcast(data(0), WORD.as_pointer())  # four values of a vector at a time
    packed = builder.bitcast(builder.gep(data(2), [offset]), BYTES.as_pointer())
    bias = builder.bitcast(builder.gep(data(5), [word]), WORDS.as_pointer())
    quads = builder.mul(eights, LONG(2))
    rows = [builder.gep(points, [builder.mul(builder.add(first, LONG(row)), quads)]) for row in range(ROWS)]
    sums = [[cgutils.alloca_once(builder, WORDS) for _ in range(COLUMNS)] for _ in range(ROWS)]
    for column in range(COLUMNS):
        start = builder.load(builder.gep(bias, [LONG(column)]), align=4)
        for row in range(ROWS):
            builder.store(start, sums[row][column])
    with cgutils.for_range(builder, eights) as loop:
        _emit_eight_dimensions(builder, loop.index, rows, packed, sums)
    return _emit_comparison(builder, sums, data(7), first, builder.bitcast(data(8), WORDS.as_pointer()))


def _emit_eight_dimensions(builder: Any, index: Any, rows: Any, packed: Any, sums: Any) -> None:
    def function(name: str, result: Any, argument: Any) -> Any:
        kind = ir.FunctionType(result, [argument, argument])
        return cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx2.{name}")

    def theirs(quad: Any, column: int) -> Any:
        place = builder.add(builder.mul(quad, LONG(COLUMNS)), LONG(column))
        return builder.load(builder.gep(packed, [place]), align=1)

    add_bytes, add_shorts = function("pmadd.ub.sw", SHORTS, BYTES), function("pmadd.wd", WORDS, SHORTS)
    quads = [builder.add(builder.mul(index, LONG(2)), LONG(half)) for half in range(2)]
    values = [[theirs(quad, column) for column in range(COLUMNS)] for quad in quads]
    for row in range(ROWS):
        fours = [builder.load(builder.gep(rows[row], [quad]), align=1) for quad in quads]
        ours = [builder.bitcast(_splat(builder, four, WORDS), BYTES) for four in fours]
        for column in range(COLUMNS):
            both = [builder.call(add_bytes, [ours[half], values[half][column]]) for half in range(2)]
            total = builder.call(add_shorts, [builder.add(*both), ir.Constant(SHORTS, [1] * 16)])
            builder.store(builder.add(builder.load(sums[row][column]), total), sums[row][column])


@intrinsic  # type: ignore[untyped-decorator]
def products_vnni(
    typing_context: Any,
    points: Any,
    first: Any,
    packed: Any,
    offset: Any,
    eights: Any,
    bias: Any,
    word: Any,
    limits: Any,
    tile: Any,
) -> Any:
    """The same with sums of 32 bits from the first product on: a third of the instructions."""
    whole = types.int64
    return whole(points, whole, packed, whole, whole, bias, whole, limits, tile), _emit_wide_products


def _emit_wide_products(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    def data(number: int) -> Any:
        return context.make_array(signature.args[number])(context, builder, arguments[number]).data

    _, first, _, offset, eights, _, word, _, _ = arguments
    points = builder.bitcast(data(0), WORD.as_pointer())
    packed = builder.bitcast(builder.gep(data(2), [offset]), WIDE.as_pointer())
    start = builder.load(builder.bitcast(builder.gep(data(5), [word]), WIDE.as_pointer()), align=4)
    quads = builder.mul(eights, LONG(2))
    rows = [builder.gep(points, [builder.mul(builder.add(first, LONG(row)), quads)]) for row in range(ROWS)]
    sums = [cgutils.alloca_once_value(builder, start) for _ in range(ROWS)]
    kind = ir.FunctionType(WIDE, [WIDE, WIDE, WIDE])
    add = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    with cgutils.for_range(builder, quads) as loop:
        values = builder.load(builder.gep(packed, [loop.index]), align=1)
        for row in range(ROWS):
            ours = _splat(builder, builder.load(builder.gep(rows[row], [loop.index]), align=1), WIDE)
            builder.store(builder.call(add, [builder.load(sums[row]), ours, values]), sums[row])
    tile = builder.bitcast(data(8), WIDE.as_pointer())
    return _emit_comparison(builder, [[total] for total in sums], data(7), first, tile)


def _emit_comparison(builder: Any, sums: Any, limits: Any, first: Any, tile: Any) -> Any:
    """Stores the sums; a bit for each row that has one above its limit."""
    hits, columns = LONG(0), len(sums[0])
    kind, bits = (WORDS, BYTE) if columns == COLUMNS else (WIDE, SHORT)
    for row in range(ROWS):
        limit = _splat(builder, builder.load(builder.gep(limits, [builder.add(first, LONG(row))]), align=4), kind)
        above = []
        for column in range(columns):
            total = builder.load(sums[row][column])
            builder.store(total, builder.gep(tile, [LONG(row * columns + column)]), align=4)
            above.append(builder.icmp_signed(">", total, limit))
        some = builder.icmp_unsigned("!=", builder.bitcast(functools.reduce(builder.or_, above), bits), bits(0))
        hits = builder.or_(hits, builder.shl(builder.zext(some, LONG), LONG(row)))
    return hits


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    """As many times the same as the kind has room for."""
    nothing, zeros = ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(WORD, kind.count), [0] * kind.count)
    return builder.shuffle_vector(builder.insert_element(nothing, value, WORD(0)), nothing, zeros)


byte_products = products_vnni if has_vnni() else products_avx2 if has_avx2() else products_plain
