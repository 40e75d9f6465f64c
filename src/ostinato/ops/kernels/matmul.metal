// Products of weights with many tokens, by Metal 4's matmul2d: one tile of the result per group of threads.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

/// out[token, row] = weight[row] · x[token], in tiles of TOKENS × ROWS.
template <typename T, int TOKENS, int ROWS, int SIMDGROUPS>
[[max_total_threads_per_threadgroup(32 * SIMDGROUPS)]]
kernel void matmul(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]], device T *out [[buffer(2)]],
                   constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                   constant uint &tokens [[buffer(5)]], uint2 group [[threadgroup_position_in_grid]]) {
    auto left = tensor(x, dextents<int, 2>(width, tokens));
    auto right = tensor(weight, dextents<int, 2>(width, rows));
    auto whole = tensor(out, dextents<int, 2>(rows, tokens));
    constexpr auto product = matmul2d_descriptor(TOKENS, ROWS, static_cast<int>(dynamic_extent), false, true);
    matmul2d<product, execution_simdgroups<SIMDGROUPS>> op;
    const int token = group.y * TOKENS, row = group.x * ROWS;
    auto some_tokens = left.slice(0, token);
    auto some_rows = right.slice(0, row);
    auto sums = op.template get_destination_cooperative_tensor<decltype(some_tokens), decltype(some_rows), float>();
    op.run(some_tokens, some_rows, sums);
    sums.store(whole.slice(row, token));
}

#define TILED(T, TOKENS, ROWS, SIMDGROUPS)                                                                            \
    template [[host_name("matmul_" #T "_" #TOKENS "_" #ROWS "_" #SIMDGROUPS)]] kernel void                            \
    matmul<T, TOKENS, ROWS, SIMDGROUPS>(device const T *, device const T *, device T *, constant uint &,              \
                                        constant uint &, constant uint &, uint2);
#define INSTANCES(T)                                                                                                  \
    TILED(T, 128, 256, 8)                                                                                             \
    TILED(T, 128, 128, 8)                                                                                             \
    TILED(T, 64, 128, 4)                                                                                              \
    TILED(T, 64, 64, 4)

INSTANCES(half)
INSTANCES(bfloat)
