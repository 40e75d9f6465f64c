"""Is the change right, and is it faster? A kernel is measured, changed, checked against NumPy, and compared.

Transposing a matrix reads along rows and writes along columns. The new kernel moves 8 × 8 tiles, so that both stay
within a few cache lines.
"""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void transpose(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                      constant uint &size [[buffer(2)]], uint2 id [[thread_position_in_grid]]) {
    out[id.x * size + id.y] = x[id.y * size + id.x];
}

kernel void transpose_tiles(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                            constant uint &size [[buffer(2)]], uint2 id [[thread_position_in_grid]]) {
    for (uint row = 0; row < 8; ++row)
        for (uint column = 0; column < 8; ++column)
            out[(id.x * 8 + column) * size + id.y * 8 + row] = x[(id.y * 8 + row) * size + id.x * 8 + column];
}
"""
SIZE = 512


def main() -> None:
    dev = ost.open_device()
    kernels = dev.library(SOURCE)
    values = np.random.default_rng(0).random((SIZE, SIZE), np.float32)
    x, out = dev.array(values), dev.zeros((SIZE, SIZE), np.float32)

    def transposed(enc: ost.CommandEncoder, name: str, threads: int) -> None:
        moved, grid = x.nbytes, (threads, threads)
        enc.dispatch(kernels[name], x, out, SIZE, threads=grid, bytes_read=moved, bytes_written=moved)

    def before(enc: ost.CommandEncoder) -> None:
        transposed(enc, "transpose", SIZE)

    def after(enc: ost.CommandEncoder) -> None:
        transposed(enc, "transpose_tiles", SIZE // 8)

    for encode in (before, after):
        dev.capture(encode).instantiate().replay().wait()
        np.testing.assert_array_equal(out.numpy(), values.T)
        out.write(np.zeros((SIZE, SIZE), np.float32))
        print(ost.bench(encode, device=dev, seconds=1))

    comparison = ost.compare(before, after, device=dev, names=("before", "after"), seconds=2)
    print(comparison)


if __name__ == "__main__":
    main()
