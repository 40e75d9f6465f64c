"""Mutated sources and graph files against the promise of the front end: it reads them or raises an `OstinatoError`.

`python tests/msl/fuzzing.py SECONDS` runs on all cores and prints what it finds with its seed. Every case follows from
its seed alone.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from hostile_sources import SOURCES

import ostinato as ost
from ostinato import msl
from ostinato.graph.file import load_graph

KERNELS = Path(ost.__file__).parent / "ops" / "kernels"
SLOW_S = 20.0
"""Of processor time, for one case of a few kilobytes."""

_TOKEN = re.compile(r"\s+|[\w$]+|\"[^\"\n]*\"|.", re.DOTALL)
_ROUGH = (
    "# ## #if #endif #else #elif #define #undef #include #line #pragma _Pragma(\"x\") \\\n // /* */ \" ' ` @ \\ ( ) [ ] { } [[ ]] \ud800 \0 \r "
    "\u00e9 asm extern new __attribute__ __VA_ARGS__"
).split(" ")  # fmt: skip
_SMOOTH = (
    "< > << >> <<= >>= ; : :: , . ... -> ->* ? = == + - ++ ~ ! && || & | ^ % * / () [] {} (1) [1] {1} [[]] (( )) 0 1 09 0x 0x1p99999 "
    "1e999 1.0 1'0 1h 1bf 0b2 99999999999999999999 9e-50 kernel template template<typename_T> template<> typename struct struct_S{} "
    "class enum union namespace namespace_n{ } using using_A=int; typedef operator operator() operator< friend inline static static_const "
    "constexpr const constant device threadgroup thread volatile void int uint float half bfloat uint3 ushort3 vec<float,4> float4 "
    "array<int,2> [[buffer(0)]] [[buffer(09)]] [[buffer(N)]] [[threadgroup(0)]] [[function_constant(0)]] [[function_constant(b)]] "
    "[[thread_position_in_grid]] [[threads_per_threadgroup]] [[host_name(\"k\")]] [[max_total_threads_per_threadgroup(8)]] "
    "is_function_constant_defined(x) is_function_constant_defined( [[gnu::unused]] if if(1) else for for(;;) for(int_i=0;i<4;++i) while "
    "while(1) do do{}while(0); switch switch(1) case default: break; continue; return return; goto l: simd_sum(1) .xy .xyz=x ->yx "
    "threadgroup_barrier(mem_flags::mem_none); sizeof decltype( alignas(8) __attribute__((aligned(8))) defined __LINE__ __FILE__ "
    "__COUNTER__ [&](int_x){return_x;} threadgroup_float_t[4]; {[0_..._3]=1} (int_x,_int_y) device_float_*x constant_int_&y , \n"
).split(" ")  # fmt: skip
_SMALL_KERNELS = (
    "constant int N [[function_constant(0)]];\nconstant bool b = is_function_constant_defined(N);\nconstant float4 t = float4(1).wzyx;",
    "template <typename T, int M = 4> struct S { T a[M]; static constant constexpr int n = M; S() thread = default; T f(T x) const { return x; } };",
    "template <typename T> [[kernel]] void k(device T *x [[buffer(0)]], constant T &y, threadgroup T *s [[threadgroup(0)]], uint3 i [[thread_position_in_grid]]) "
    "{ threadgroup T m[8]; m[i.x] = x[i.x] + y; threadgroup_barrier(mem_flags::mem_threadgroup); x[i.x] = m[7 - i.x] >> 1; }\n"
    'template [[host_name("a")]] kernel void k<int>(device int *, constant int &, threadgroup int *, uint3);',
    "float f(device float *x) { return *x; }\nfloat f(threadgroup float *x) { return *x + 1; }\nfloat f(constant float *x) { return *x; }",
    "kernel void r(device float4 *x, constant uint &n [[buffer(3)]], uint i [[thread_index_in_threadgroup]]) { for (uint j = i; j < n; j += 32) "
    "{ x[j].xy = x[j].yx; } float s = simd_sum(x[i].x > 0 ? x[i].y : half(1)); if (i < n) { threadgroup_barrier(mem_flags::mem_none); } else return; x[i] = s; }",
    "#define F(a, ...) a(__VA_ARGS__)\n#define G(x) #x\n#define C(a, b) a##b\n#if defined(F) && __METAL_VERSION__ >= 300 ? 1 : 0\nint C(a, 1)(int x) { return F(C(a, 1), x); }\n#endif",
    "namespace n { enum E { A, B = 1 << 2 }; using T = vec<float, 2>; typedef struct { int a; } P; inline namespace m { kernel void q(device P *p, device T *t) { p->a = E::A; } } }",
    "void g(thread float &x) { do { x += 1; while (x < 3) { if (x > 2) continue; x *= 2; break; } switch (int(x)) { case 1: x = 1; default: break; } } while (x < 1); }",
    "kernel void l(device int *x, uint i [[thread_position_in_grid]]) { auto f = [&](int y) { return y + x[i]; }; int a[4] = {[0 ... 3] = 1}; x[i] = f(a[i & 3]) << (i >> 2); }",
)


def _spice(rng: random.Random) -> str:
    return rng.choice(_ROUGH) if rng.random() < 0.05 else f" {rng.choice(_SMOOTH).replace('_', ' ')} "


@dataclass(frozen=True)
class Found:
    """A case that broke the promise."""

    seed: int
    what: str
    case: str


@cache
def corpus() -> tuple[str, ...]:
    """Pieces of our own sources, a declaration or so each, and the hostile ones."""
    pieces: list[str] = []
    for path in sorted(KERNELS.glob("*.metal")):
        pieces += [piece for piece in path.read_text().split("\n\n") if len(piece) < 4000 and "#include" not in piece]
    return (*_SMALL_KERNELS * 100, *pieces * 4, *SOURCES.values())


def mutated(seed: int) -> str:
    """A source: some pieces of the corpus, some of their tokens changed."""
    rng = random.Random(seed)
    text = "\n".join(rng.choices(corpus(), k=rng.choice((1, 1, 2, 3))))
    tokens = _TOKEN.findall(text) or [""]
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, kind = (
            rng.randrange(len(tokens)),
            rng.choice((0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5)) if rng.random() < 0.97 else 6,
        )
        if kind == 0:
            del tokens[at : at + rng.choice((1, 1, 3, 30))]
        elif kind == 1:
            tokens.insert(at, _spice(rng))
        elif kind == 2:
            tokens[at] = _spice(rng)
        elif kind == 3:
            tokens[at] = tokens[rng.randrange(len(tokens))]
        elif kind == 4:
            tokens[at:at] = tokens[at : at + rng.choice((1, 5, 40))] * rng.choice((1, 2, 20))
        elif kind == 5:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif tokens[at]:
            place = rng.randrange(len(tokens[at]))
            tokens[at] = tokens[at][:place] + chr(rng.choice((0, 10, 34, 39, 92, 35, 60, 0xE9))) + tokens[at][place:]
        tokens = tokens or [""]
    return "".join(tokens)


def _try_source(seed: int) -> str | None:
    source = mutated(seed)
    try:
        module = msl.parse(source)
        constants: dict[int | str, object] = {constant.name: 1 for constant in module.constants}
        module.translate(("cpu", "cuda")[seed % 2], constants=constants, fibers=seed % 8 == 0)
    except ost.OstinatoError:
        pass
    except Exception:
        return f"{traceback.format_exc(limit=-4)}{source!r}"
    return None


@cache
def graph_file() -> bytes:
    """A graph with two dispatches, as it is saved."""
    device = ost.open_device("cpu")
    library = device.library(_SMALL, constants={"width": 8})
    x = device.zeros(8, "float32")

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(library["twice"], x, 2.0, threads=8)
        encoder.dispatch(library["twice"], x, 3.0, threads=8)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        device.capture(encode).save(path)
        return path.read_bytes()


_SMALL = """
constant uint width [[function_constant(0)]];
kernel void twice(device float *x [[buffer(0)]], constant float &f [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    if (i < width) x[i] *= f;
}
"""


def with_source(source: bytes) -> bytes:
    """The graph file with another source."""
    return _repacked({**_entries(), "sources/000.metal": source})


def _entries() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(graph_file())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _repacked(entries: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return packed.getvalue()


def mutated_graph_file(seed: int) -> bytes:
    """A graph file with another source, another document, or other bytes."""
    rng = random.Random(seed)
    kind = rng.randrange(3)
    if kind == 0:
        return with_source(mutated(seed).encode("utf-8", "surrogatepass"))
    if kind == 1:
        entries = _entries()
        text = json.dumps(json.loads(entries["graph.json"]))
        tokens = re.findall(r"\"[^\"]*\"|[\w.-]+|.", text)
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(tokens))
            tokens[at] = rng.choice((*tokens, "null", "-1", "1e9", "[]", "{}", '""', "true", str(1 << 70), "[" * 2000))
        return _repacked({**entries, "graph.json": "".join(tokens).encode()})
    data = bytearray(graph_file())
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _try_graph_file(seed: int, folder: Path) -> str | None:
    path = folder / "graph"
    path.write_bytes(mutated_graph_file(seed))
    try:
        load_graph(path)
    except ost.GraphFileError:
        pass
    except Exception:
        return traceback.format_exc(limit=-4)
    return None


def run(seeds: Sequence[int], folder: Path | None = None) -> list[Found]:
    """Tries the sources of these seeds, and every tenth as a graph file in ``folder``."""
    found = []
    for seed in seeds:
        began = time.process_time()
        as_file = folder is not None and seed % 10 == 0
        what = _try_graph_file(seed, folder) if as_file and folder is not None else _try_source(seed)
        if what is None and time.process_time() - began > SLOW_S:
            what = f"took {time.process_time() - began:.1f} s of processor time"
        if what is not None:
            found.append(Found(seed, "graph file" if as_file else "source", what))
    return found


def _work(start: int, step: int, deadline: float, results: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for first in count(start, step * 50):
            if time.monotonic() > deadline:
                break
            results.put(run(range(first, first + step * 50, step), Path(folder)))
    results.put(None)


def main() -> int:
    """Runs for the seconds given, on all cores."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    first = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % (1 << 40)
    began = told = time.monotonic()
    workers = os.cpu_count() or 1
    print(f"seeds from {first}, {workers} processes, {seconds:.0f} s", flush=True)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    for start in range(first, first + workers):
        context.Process(target=_work, args=(start, workers, began + seconds, results), daemon=True).start()
    tried = broken = 0
    while workers:
        found = results.get()
        if found is None:
            workers -= 1
            continue
        tried += 50
        broken += len(found)
        for one in found:
            print(f"seed {one.seed} ({one.what}):\n{one.case}\n", flush=True)
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{tried:,} tried in {told - began:.0f} s, {broken} broke the promise", flush=True)
    print(f"{tried:,} tried, {broken} broke the promise")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main())
