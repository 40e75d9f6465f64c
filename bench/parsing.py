"""How long the front end takes: for thousands of instances of templates, and for whatever repeats.

The first table is of a source with 5,000 instances, through macros as real libraries write them: reading it, taking it
again with other function constants, and translating one of its kernels. Reading it is to take less than 2 s on an idle
machine. The second is of 1 MB of one token or bracket and of other things that repeat; reading is to take less than 3 s
whatever it is made of. Times are seconds of the processor.

    python bench/parsing.py [--json] [--instances N] [--bytes N] [WORD…]

Words choose rows of the second table by their names; ``none`` leaves it out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import ostinato as ost
from harness import Table, report
from ostinato import msl
from ostinato.runtime.parsing import parsed

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "msl"))

from growing_sources import SOURCES

INSTANCES_LIMIT_S = 2.0
LIMIT_S = 3.0
TYPES = "float half int uint short ushort char uchar long ulong".split()
Result = TypeVar("Result")


def instances_source(count: int) -> str:
    """A source with this many kernels: instances of a template with ten arguments, eleven from each use of a macro."""
    names = [f"op_{number}" for number in range(-(-count // (len(TYPES) + 1)))]
    functors = "".join(
        f"struct {name} {{ template <typename T> T operator()(T a, T b) {{ return a + T({at % 7}) * b; }} }};\n"
        for at, name in enumerate(names)
    )
    registered = " ".join(f"REGISTER(OP, {each}, {each}); \\\n" for each in TYPES)
    uses = "".join(f"REGISTER_ALL({name});\n" for name in names)
    return f"""#include <metal_stdlib>
using namespace metal;
constant bool scaled [[function_constant(0)]];
constant float factor [[function_constant(1)]];
{functors}
template <typename T, typename O, typename F>
kernel void binary(device O *out [[buffer(0)]], constant T *a [[buffer(1)]], constant T *b [[buffer(2)]],
                   constant long *sizes [[buffer(3)]], constant long *out_strides [[buffer(4)]],
                   constant long *a_strides [[buffer(5)]], constant long *b_strides [[buffer(6)]],
                   constant uint4 &ndim [[buffer(7)]], constant float &alpha [[buffer(8)]],
                   uint i [[thread_position_in_grid]]) {{
  out[i * out_strides[0]] = O(F()(a[i * a_strides[0]], b[i * b_strides[0]]) * (scaled ? T(factor) : T(alpha)));
}}
#define REGISTER(NAME, IN, OUT) \\
  template [[host_name(#NAME "_" #IN "_" #OUT)]] kernel void binary<IN, OUT, NAME>( \\
    device OUT *out [[buffer(0)]], constant IN *a [[buffer(1)]], constant IN *b [[buffer(2)]], \\
    constant long *sizes [[buffer(3)]], constant long *out_strides [[buffer(4)]], \\
    constant long *a_strides [[buffer(5)]], constant long *b_strides [[buffer(6)]], \\
    constant uint4 &ndim [[buffer(7)]], constant float &alpha [[buffer(8)]], uint i [[thread_position_in_grid]])
#define REGISTER_ALL(OP) {registered} REGISTER(OP, float, half)
{uses}"""


def instances(count: int) -> Table:
    """What a source of many kernels costs."""
    source = instances_source(count)
    module, parse_s = _timed(lambda: parsed(source, (), {}, {}))
    again, again_s = _timed(lambda: parsed(source, (), {}, {}))
    assert again is module
    name = next(reversed(module.kernels))
    constants: dict[int | str, object] = {0: True, 1: 2.0}
    cpu_s, cuda_s = (_timed(lambda target=target: module.translate(target, constants, [name]))[1] for target in TARGETS)
    row = (len(module.kernels), module.token_count, parse_s, again_s, cpu_s, cuda_s, parse_s < INSTANCES_LIMIT_S)
    columns = ("kernels", "tokens", "parse s", "other constants s", "translate one, cpu s", "cuda s", "under 2 s")
    return Table("Instances of a template", columns, [row])


TARGETS = ("cpu", "cuda")


def repeated(size: int, words: list[str]) -> Table:
    """What repeats."""
    rows = []
    for name, make in SOURCES.items():
        if not words or any(word in name for word in words):
            seconds, outcome = _times(make(size))
            rows.append((name, *seconds, *[""] * (3 - len(seconds)), outcome))
    return Table(f"{size:,} bytes of", ("what", "parse s", "cpu s", "cuda s", "outcome"), rows)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def _times(source: str) -> tuple[list[float], str]:
    """Processor seconds of parsing and of both translations, as far as it came; and how it ended."""
    seconds = []
    began = time.process_time()
    try:
        module = msl.parse(source)
        seconds.append(time.process_time() - began)
        for target in TARGETS:
            began = time.process_time()
            module.translate(target, constants={constant.name: 1 for constant in module.constants})
            seconds.append(time.process_time() - began)
    except ost.OstinatoError as error:
        seconds.append(time.process_time() - began)
        return seconds, " ".join(str(error).split())[:60]
    return seconds, "ok"


def main() -> int:
    """The tables; fails when a row is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--instances", type=int, default=5000, help="kernels of the first table")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="size of the sources of the second table")
    parser.add_argument("words", nargs="*", help="rows of the second table")
    options = parser.parse_args()
    many, others = instances(options.instances), repeated(options.bytes, options.words)
    report([many, others], options.json)
    slow = [row[0] for row in others.rows if float(str(row[1])) > LIMIT_S]
    print(f"over {LIMIT_S:.0f} s to parse: {', '.join(map(str, slow)) or 'none'}", file=sys.stderr)
    return bool(slow) or not many.rows[0][-1]


if __name__ == "__main__":
    sys.exit(main())
