// rms_norm(x) in the threadgroup memory of products, in parts of 16 bytes: each group normalises x for itself. Macros,
// for kernels whose arguments and positions have the names used here.
#pragma once

#include "parts.h"
#include "vectors.h"

constant constexpr uint SIMD = 32;
constant constexpr uint KEPT_NORMED = 2;  // parts of x that a thread holds

// A thread's part of the weights of the norm, which may be loaded before the kernel waits for x.
#define LOAD_GAIN()                                                                                                   \
    uint4 gain[KEPT_NORMED];                                                                                          \
    if (aligned) {                                                                                                    \
        for (uint step = 0; step < KEPT_NORMED; ++step) {                                                             \
            gain[step] = in_vectors<uint4>(norm)[min(member + step * members, parts - 1)];                            \
        }                                                                                                             \
    }

// Normalises x, and stages it.
#define STAGE_NORMED_X()                                                                                              \
    {                                                                                                                 \
        device const uint4 *given = in_vectors<uint4>(x);                                                             \
        device const uint4 *gains = in_vectors<uint4>(norm);                                                          \
        uint4 kept[KEPT_NORMED];                                                                                      \
        float squares = 0.0f;                                                                                         \
        if (aligned) {                                                                                                \
            for (uint step = 0; step < KEPT_NORMED; ++step) {                                                         \
                kept[step] = given[min(member + step * members, parts - 1)];                                          \
            }                                                                                                         \
        }                                                                                                             \
        if (aligned) {                                                                                                \
            for (uint step = 0; step < KEPT_NORMED; ++step) {                                                         \
                const float own = product_of_16_bytes<T>(kept[step], kept[step]);                                     \
                squares += member + step * members < parts ? own : 0.0f;                                              \
            }                                                                                                         \
            for (uint place = member + KEPT_NORMED * members; place < parts; place += members) {                      \
                squares += product_of_16_bytes<T>(given[place], given[place]);                                        \
            }                                                                                                         \
        } else {                                                                                                      \
            for (uint place = member; place < width; place += members) {                                              \
                squares += float(x[place]) * float(x[place]);                                                         \
            }                                                                                                         \
        }                                                                                                             \
        squares = simd_sum(squares);                                                                                  \
        if (lane == 0) {                                                                                              \
            partial[simdgroup] = squares;                                                                             \
        }                                                                                                             \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                                              \
        const float whole = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);                                       \
        const float scale = rsqrt(whole / float(width) + eps);                                                        \
        if (aligned) {                                                                                                \
            for (uint step = 0; step < KEPT_NORMED; ++step) {                                                         \
                if (member + step * members < parts) {                                                                \
                    room[member + step * members] = scaled_16_bytes<T>(kept[step], gain[step], scale);                \
                }                                                                                                     \
            }                                                                                                         \
            for (uint place = member + KEPT_NORMED * members; place < parts; place += members) {                      \
                room[place] = scaled_16_bytes<T>(given[place], gains[place], scale);                                  \
            }                                                                                                         \
        } else {                                                                                                      \
            for (uint place = member; place < width; place += members) {                                              \
                own_x[place] = T(float(x[place]) * scale * float(norm[place]));                                       \
            }                                                                                                         \
        }                                                                                                             \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                                              \
    }
