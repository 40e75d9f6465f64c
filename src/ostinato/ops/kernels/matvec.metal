// Matrix by vector and matrix by matrix, for a GPU. matvec_plain.metal is for CPUs.
//
// A simdgroup computes a row of the weights, or several share a row if there are few. If rows start at multiples of 16
// bytes (`aligned`), lanes read 16 bytes at a time, with FLIGHT loads in flight. Every group stages x in threadgroup
// memory if it fits (`staged`): loads of x from device memory would queue behind those of the weights, and cost as much
// time. Groups take rows in turn, and load the next rows before the last are summed up. The first rows are loaded before the
// kernel waits for x, so that the memory is busy between dispatches.
//
// Weights are [out, in]. Sums are kept in float and rounded once, to the type that is stored.

#include "parts.h"
#include "functions.h"
#include "normed.h"
#include "vectors.h"
#include <ostinato>

constant constexpr uint MOST_SIMDGROUPS = 8;
constant constexpr uint KEPT = 4;  // parts of 16 bytes of x that a thread holds

// The parts of a row that a lane reads at a time: every `stride`-th, from the part `at` on. Beyond the end of the row
// the last part is read again, which `products` does not count.
template <uint FLIGHT>
inline void load_parts(device const uint4 *row, uint at, uint stride, uint parts, thread uint4 *loaded) {
    for (uint step = 0; step < FLIGHT; ++step) { loaded[step] = row[min(at + step * stride, parts - 1)]; }
}

// A lane's share of a row's product with x in device or threadgroup memory, of which HELD parts are loaded at a time;
// the first parts of the row have been loaded. Macros, because an address space cannot be a parameter.
#define DEFINE_PRODUCTS(products, lane_product, space, HELD)                                                          \
    template <typename T, uint FLIGHT>                                                                                \
    inline float products(thread const uint4 *loaded, space const uint4 *x, uint at, uint stride, uint parts) {       \
        float sum = 0.0f;                                                                                             \
        for (uint begin = 0; begin < FLIGHT; begin += HELD) {                                                         \
            uint4 held[HELD];                                                                                         \
            for (uint step = 0; step < HELD; ++step) {                                                                \
                held[step] = x[min(at + (begin + step) * stride, parts - 1)];                                         \
            }                                                                                                         \
            for (uint step = 0; step < HELD; ++step) {                                                                \
                const float product = product_of_16_bytes<T>(loaded[begin + step], held[step]);                       \
                sum += at + (begin + step) * stride < parts ? product : 0.0f;                                         \
            }                                                                                                         \
        }                                                                                                             \
        return sum;                                                                                                   \
    }                                                                                                                 \
    template <typename T, uint FLIGHT>                                                                                \
    inline float lane_product(device const T *row, space const T *x, uint width, uint aligned, uint first,            \
                              uint stride, thread uint4 *loaded) {                                                    \
        float sum = 0.0f;                                                                                             \
        if (!aligned) {                                                                                               \
            for (uint at = first; at < width; at += stride) {                                                         \
                sum += float(row[at]) * float(x[at]);                                                                 \
            }                                                                                                         \
            return sum;                                                                                               \
        }                                                                                                             \
        const uint parts = width / (16 / sizeof(T));                                                                  \
        for (uint at = first; at < parts; at += FLIGHT * stride) {                                                    \
            if (at != first) {                                                                                        \
                load_parts<FLIGHT>(in_vectors<uint4>(row), at, stride, parts, loaded);                                \
            }                                                                                                         \
            sum += products<T, FLIGHT>(loaded, (space const uint4 *)x, at, stride, parts);                            \
        }                                                                                                             \
        return sum;                                                                                                   \
    }

DEFINE_PRODUCTS(products, lane_product, device, FLIGHT)
DEFINE_PRODUCTS(staged_products, staged_lane_product, threadgroup, 1)

// The sum of a row, of which each of `split` simdgroups has a share.
inline float shared_sum(threadgroup const float *partial, uint line, uint split) {
    float sum = 0.0f;
    for (uint part = 0; part < split; ++part) { sum += partial[line * split + part]; }
    return sum;
}

// A row of a matrix; beyond the last one, the last.
template <typename T>
inline device const T *row_of(device const T *matrix, uint row, uint rows, uint width) {
    return matrix + ulong(min(row, rows - 1)) * width;
}

// Building blocks of the kernels below. A group makes `each` results at a time, from `base` on, which its first threads
// store; a simdgroup's own row is that of the result `mine` of those.

// `split` simdgroups share a row: where in it a lane begins, which of the group's rows it is, how many the group has.
#define PLACE_OF_LANE()                                                                                               \
    const uint first = simdgroup % split * SIMD + lane, stride = split * SIMD;                                        \
    const uint line = simdgroup / split, together = simdgroups / split, parts = width / (16 / sizeof(T));             \
    threadgroup T *own_x = (threadgroup T *)room;                                                                     \
    uint4 loaded[FLIGHT];

// The first parts of a row, before anything else is done with it.
#define LOAD_ROW(base)                                                                                                \
    if (aligned && base < rows) {                                                                                     \
        device const T *next = row_of(matrix, base + mine, rows, width);                                              \
        load_parts<FLIGHT>(in_vectors<uint4>(next), first, stride, parts, loaded);                                    \
    }

// Loads a thread's part of x, and stages x in threadgroup memory.
#define LOAD_X(from)                                                                                                  \
    device const uint4 *given = in_vectors<uint4>(from);                                                              \
    uint4 kept[KEPT];                                                                                                 \
    if (staged && aligned) {                                                                                          \
        for (uint step = 0; step < KEPT; ++step) {                                                                    \
            kept[step] = given[min(member + step * members, parts - 1)];                                              \
        }                                                                                                             \
    }
#define STAGE_X(from)                                                                                                 \
    if (staged && aligned) {                                                                                          \
        for (uint step = 0; step < KEPT; ++step) {                                                                    \
            if (member + step * members < parts) {                                                                    \
                room[member + step * members] = kept[step];                                                           \
            }                                                                                                         \
        }                                                                                                             \
        for (uint place = member + KEPT * members; place < parts; place += members) {                                 \
            room[place] = given[place];                                                                               \
        }                                                                                                             \
    } else if (staged) {                                                                                              \
        for (uint place = member; place < width; place += members) {                                                  \
            own_x[place] = (from)[place];                                                                             \
        }                                                                                                             \
    }                                                                                                                 \
    threadgroup_barrier(mem_flags::mem_threadgroup);

// A lane's share of its row, from the first parts that were loaded on.
#define PRODUCT_WITH_STAGED_X()                                                                                       \
    staged_lane_product<T, FLIGHT>(row_of(matrix, base + mine, rows, width), own_x, width, aligned, first, stride,    \
                                   loaded)
#define PRODUCT_WITH(from)                                                                                            \
    staged ? PRODUCT_WITH_STAGED_X()                                                                                  \
           : lane_product<T, FLIGHT>(row_of(matrix, base + mine, rows, width), from, width, aligned, first, stride,   \
                                     loaded)

// Puts the simdgroups' sums where the first threads of the group read them.
#define SHARE_SUMS(own)                                                                                               \
    const float sum = simd_sum(own);                                                                                  \
    threadgroup_barrier(mem_flags::mem_threadgroup);                                                                  \
    if (lane == 0) {                                                                                                  \
        partial[simdgroup] = sum;                                                                                     \
    }                                                                                                                 \
    threadgroup_barrier(mem_flags::mem_threadgroup);

/// out = weight · x; with `added`, out = addend + weight · x, rounded after each of the two.
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]], device T *out [[buffer(2)]],
                   constant uint &width [[buffer(3)]], device const T *addend [[buffer(4)]],
                   constant uint &added [[buffer(5)]], constant uint &rows [[buffer(6)]],
                   constant uint &aligned [[buffer(7)]], constant uint &split [[buffer(8)]],
                   constant uint &staged [[buffer(9)]], threadgroup uint4 *room [[threadgroup(0)]],
                   uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                   uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_LANE()
    const uint each = together, mine = line;
    device const T *matrix = weight;
    LOAD_ROW(group * each)
    ostinato::wait_for_all_but(weight);
    // `out` may be the addend: no thread reads what another thread stores.
    T next_addend = T(0);
    if (added && member < each && group * each + member < rows) { next_addend = addend[group * each + member]; }
    LOAD_X(x)
    STAGE_X(x)
    for (uint base = group * each; base < rows; base += groups * each) {
        const float own = PRODUCT_WITH(x);
        const T before = next_addend;
        const uint next_result = base + groups * each + member;
        if (added && member < each && next_result < rows) { next_addend = addend[next_result]; }
        LOAD_ROW(base + groups * each)
        SHARE_SUMS(own)
        if (member < each && base + member < rows) {
            const T product = T(shared_sum(partial, member, split));
            out[base + member] = added ? T(float(product) + float(before)) : product;
        }
    }
}

/// out = weight · rms_norm(x, norm)
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void norm_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                        device const T *norm [[buffer(2)]], device T *out [[buffer(3)]],
                        constant uint &width [[buffer(4)]], constant float &eps [[buffer(5)]],
                        constant uint &rows [[buffer(6)]], constant uint &aligned [[buffer(7)]],
                        constant uint &split [[buffer(8)]], threadgroup uint4 *room [[threadgroup(0)]],
                        uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                        uint member [[thread_index_in_threadgroup]], uint members [[threads_per_threadgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_LANE()
    const uint each = together, mine = line;
    device const T *matrix = weight;
    LOAD_ROW(group * each)
    LOAD_GAIN()
    ostinato::wait_for_all_but(weight, norm);
    STAGE_NORMED_X()
    for (uint base = group * each; base < rows; base += groups * each) {
        const float own = PRODUCT_WITH_STAGED_X();
        LOAD_ROW(base + groups * each)
        SHARE_SUMS(own)
        if (member < each && base + member < rows) { out[base + member] = T(shared_sum(partial, member, split)); }
    }
}

/// out = silu(weight[0] · x) · (weight[1] · x). Rows of the two matrices take turns; a group has an even number.
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                         device T *out [[buffer(2)]], constant uint &width [[buffer(3)]],
                         constant uint &rows [[buffer(4)]], constant uint &aligned [[buffer(5)]],
                         constant uint &split [[buffer(6)]], constant uint &staged [[buffer(7)]],
                         threadgroup uint4 *room [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                         uint groups [[threadgroups_per_grid]], uint member [[thread_index_in_threadgroup]],
                         uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    PLACE_OF_LANE()
    const uint each = together / 2, mine = line / 2;
    device const T *matrix = weight + ulong(line % 2) * rows * width;
    LOAD_ROW(group * each)
    ostinato::wait_for_all_but(weight);
    LOAD_X(x)
    STAGE_X(x)
    for (uint base = group * each; base < rows; base += groups * each) {
        const float own = PRODUCT_WITH(x);
        LOAD_ROW(base + groups * each)
        SHARE_SUMS(own)
        if (member < each && base + member < rows) {
            const float gate = shared_sum(partial, 2 * member, split);
            out[base + member] = T(silu(gate) * shared_sum(partial, 2 * member + 1, split));
        }
    }
}

/// For each slot, out = weight[indices[slot]] · x[slot / slots_per_x]; an index past the last expert gives NaN.
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void expert_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                          device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                          constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                          constant uint &experts [[buffer(6)]], constant uint &rows [[buffer(7)]],
                          constant uint &aligned [[buffer(8)]], constant uint &split [[buffer(9)]],
                          constant uint &staged [[buffer(10)]], threadgroup uint4 *room [[threadgroup(0)]],
                          uint2 place [[threadgroup_position_in_grid]], uint2 extent [[threadgroups_per_grid]],
                          uint member [[thread_index_in_threadgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const uint members = SIMD * simdgroups;
    const uint group = place.x, groups = extent.x, slot = place.y, expert = indices[slot];
    PLACE_OF_LANE()
    if (expert >= experts) {
        for (uint row = group * members + member; row < rows; row += groups * members) {
            out[ulong(slot) * rows + row] = T(NAN);
        }
        return;
    }
    device const T *from = x + ulong(slot / slots_per_x) * width;
    const uint each = together, mine = line;
    device const T *matrix = weight + ulong(expert) * rows * width;
    LOAD_X(from)
    LOAD_ROW(group * each)
    STAGE_X(from)
    for (uint base = group * each; base < rows; base += groups * each) {
        const float own = PRODUCT_WITH(from);
        LOAD_ROW(base + groups * each)
        SHARE_SUMS(own)
        if (member < each && base + member < rows) {
            out[ulong(slot) * rows + base + member] = T(shared_sum(partial, member, split));
        }
    }
}

/// For each slot, out = silu(weight[indices[slot], 0] · x) · (weight[indices[slot], 1] · x), as in expert_matvec.
template <typename T, uint FLIGHT>
[[max_total_threads_per_threadgroup(SIMD * MOST_SIMDGROUPS)]]
kernel void expert_gated_matvec(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]],
                                device const uint *indices [[buffer(2)]], device T *out [[buffer(3)]],
                                constant uint &width [[buffer(4)]], constant uint &slots_per_x [[buffer(5)]],
                                constant uint &experts [[buffer(6)]], constant uint &rows [[buffer(7)]],
                                constant uint &aligned [[buffer(8)]], constant uint &split [[buffer(9)]],
                                constant uint &staged [[buffer(10)]], threadgroup uint4 *room [[threadgroup(0)]],
                                uint2 place [[threadgroup_position_in_grid]], uint2 extent [[threadgroups_per_grid]],
                                uint member [[thread_index_in_threadgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]],
                                uint simdgroups [[simdgroups_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[MOST_SIMDGROUPS];
    const uint members = SIMD * simdgroups;
    const uint group = place.x, groups = extent.x, slot = place.y, expert = indices[slot];
    PLACE_OF_LANE()
    if (expert >= experts) {
        for (uint row = group * members + member; row < rows; row += groups * members) {
            out[ulong(slot) * rows + row] = T(NAN);
        }
        return;
    }
    device const T *from = x + ulong(slot / slots_per_x) * width;
    const uint each = together / 2, mine = line / 2;
    device const T *matrix = weight + (ulong(expert) * 2 + line % 2) * rows * width;
    LOAD_X(from)
    LOAD_ROW(group * each)
    STAGE_X(from)
    for (uint base = group * each; base < rows; base += groups * each) {
        const float own = PRODUCT_WITH(from);
        LOAD_ROW(base + groups * each)
        SHARE_SUMS(own)
        if (member < each && base + member < rows) {
            const float gate = shared_sum(partial, 2 * member, split);
            out[ulong(slot) * rows + base + member] = T(silu(gate) * shared_sum(partial, 2 * member + 1, split));
        }
    }
}

constant constexpr uint TILE = 64;   // rows of the weights, and tokens, per group
constant constexpr uint DEPTH = 16;  // columns at a time
constant constexpr uint SIDE = 16;   // threads along each side of a tile; 4 × 4 results per thread

/// out[token, row] = weight[row] · x[token], in tiles of 64 × 64; groups of 256 threads.
template <typename T>
[[max_total_threads_per_threadgroup(256)]]
kernel void matmul(device const T *weight [[buffer(0)]], device const T *x [[buffer(1)]], device T *out [[buffer(2)]],
                   constant uint &width [[buffer(3)]], constant uint &rows [[buffer(4)]],
                   constant uint &tokens [[buffer(5)]], uint2 group [[threadgroup_position_in_grid]],
                   uint member [[thread_index_in_threadgroup]]) {
    threadgroup float left[DEPTH][TILE + 1];
    threadgroup float right[DEPTH][TILE + 1];
    const uint first_row = group.x * TILE, first_token = group.y * TILE;
    const uint across = member % SIDE, down = member / SIDE;
    float sums[4][4] = {};
    for (uint start = 0; start < width; start += DEPTH) {
        const uint column = start + across;
        for (uint line = down; line < TILE; line += SIDE) {
            const uint row = first_row + line, token = first_token + line;
            left[across][line] = column < width && row < rows ? float(weight[ulong(row) * width + column]) : 0.0f;
            right[across][line] = column < width && token < tokens ? float(x[ulong(token) * width + column]) : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint depth = 0; depth < DEPTH; ++depth) {
            float a[4], b[4];
            for (uint step = 0; step < 4; ++step) {
                a[step] = left[depth][across + step * SIDE];
                b[step] = right[depth][down + step * SIDE];
            }
            for (uint i = 0; i < 4; ++i) {
                for (uint j = 0; j < 4; ++j) { sums[i][j] += a[i] * b[j]; }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < 4; ++i) {
        for (uint j = 0; j < 4; ++j) {
            const uint row = first_row + across + i * SIDE, token = first_token + down + j * SIDE;
            if (row < rows && token < tokens) { out[ulong(token) * rows + row] = T(sums[i][j]); }
        }
    }
}

#define BY_ROWS(T, FLIGHT)                                                                                            \
    template [[host_name("matvec" "_" #T "_" #FLIGHT)]] kernel void matvec<T, FLIGHT>(                                \
        device const T *, device const T *, device T *, constant uint &, device const T *, constant uint &,           \
        constant uint &, constant uint &, constant uint &, constant uint &, threadgroup uint4 *, uint, uint, uint,    \
        uint, uint, uint, uint);                                                                                      \
    template [[host_name("gated_matvec" "_" #T "_" #FLIGHT)]] kernel void gated_matvec<T, FLIGHT>(                    \
        device const T *, device const T *, device T *, constant uint &, constant uint &, constant uint &,            \
        constant uint &, constant uint &, threadgroup uint4 *, uint, uint, uint, uint, uint, uint, uint);             \
    template [[host_name("norm_matvec" "_" #T "_" #FLIGHT)]] kernel void norm_matvec<T, FLIGHT>(                      \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant float &,          \
        constant uint &, constant uint &, constant uint &, threadgroup uint4 *, uint, uint, uint, uint, uint, uint,   \
        uint);
#define BY_EXPERTS(name, T, FLIGHT)                                                                                   \
    template [[host_name(#name "_" #T "_" #FLIGHT)]] kernel void name<T, FLIGHT>(                                     \
        device const T *, device const T *, device const uint *, device T *, constant uint &, constant uint &,        \
        constant uint &, constant uint &, constant uint &, constant uint &, constant uint &, threadgroup uint4 *,     \
        uint2, uint2, uint, uint, uint, uint);
#define FLIGHTS(T, FLIGHT)                                                                                            \
    BY_ROWS(T, FLIGHT)                                                                                                \
    BY_EXPERTS(expert_matvec, T, FLIGHT)                                                                              \
    BY_EXPERTS(expert_gated_matvec, T, FLIGHT)
#define INSTANCES(T)                                                                                                  \
    FLIGHTS(T, 4)                                                                                                     \
    FLIGHTS(T, 8)                                                                                                     \
    template [[host_name("matmul_" #T)]] kernel void matmul<T>(device const T *, device const T *, device T *,        \
                                                               constant uint &, constant uint &, constant uint &,     \
                                                               uint2, uint);

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
