"""A matrix product in tiles of 8 × 8, by simdgroup matrices: one simdgroup computes 16 × 16 elements of the result."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void matmul(device const float *a [[buffer(0)]],
                   device const float *b [[buffer(1)]],
                   device float       *c [[buffer(2)]],
                   constant uint &columns [[buffer(3)]],
                   constant uint &inner   [[buffer(4)]],
                   uint2 tile [[threadgroup_position_in_grid]]) {
    a += tile.y * 16 * inner;
    b += tile.x * 16;
    c += tile.y * 16 * columns + tile.x * 16;

    simdgroup_float8x8 left[2], right[2], sum[2][2];
    for (uint i = 0; i < 2; ++i)
        for (uint j = 0; j < 2; ++j) sum[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

    for (uint k = 0; k < inner; k += 8) {
        for (uint i = 0; i < 2; ++i) {
            simdgroup_load(left[i], a + i * 8 * inner + k, inner);
            simdgroup_load(right[i], b + k * columns + i * 8, columns);
        }
        for (uint i = 0; i < 2; ++i)
            for (uint j = 0; j < 2; ++j) simdgroup_multiply_accumulate(sum[i][j], left[i], right[j], sum[i][j]);
    }
    for (uint i = 0; i < 2; ++i)
        for (uint j = 0; j < 2; ++j) simdgroup_store(sum[i][j], c + i * 8 * columns + j * 8, columns);
}
"""


def main() -> None:
    rows, inner, columns = 128, 64, 96  # multiples of the tile
    rng = np.random.default_rng(0)
    left = rng.normal(size=(rows, inner)).astype(np.float32)
    right = rng.normal(size=(inner, columns)).astype(np.float32)

    dev = ost.open_device()
    matmul = dev.library(SOURCE)["matmul"]
    out = dev.empty((rows, columns), np.float32)

    enc = dev.command_encoder()
    enc.dispatch(
        matmul,
        dev.array(left),
        dev.array(right),
        out,
        columns,
        inner,
        groups=(columns // 16, rows // 16),
        group_size=32,
        flops=2 * rows * inner * columns,
    )
    enc.commit_and_wait_labeled("matmul")

    np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4, atol=1e-4)
    print(f"({rows} × {inner}) · ({inner} × {columns}) on {dev.name!r}: same as NumPy")


if __name__ == "__main__":
    main()
