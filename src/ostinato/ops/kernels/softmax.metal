// Softmax over rows, for a GPU. The kernel for CPUs is in selection.metal.
//
// A group of whole simdgroups takes one row. Threads keep the exponentials of what they read in registers, as far as
// these suffice; the rest of a long row is read once more. They read and write an element at a time, or four (`fours`) or
// eight of 16 bits (`eights`) as one vector, for large buffers with the alignment of such vectors. `out` may be `x`.

#include <metal_stdlib>
using namespace metal;

#include "fours.h"
#include "functions.h"

constant constexpr uint MOST_THREADS = 1024;
constant constexpr uint MOST_SIMDGROUPS = 32;

// Elements of a row that a thread keeps.
template <uint EACH> constexpr uint kept_elements() { return EACH == 8 ? 32 : 16; }

template <typename T, uint EACH>
[[max_total_threads_per_threadgroup(MOST_THREADS)]]
kernel void softmax(device const T *x [[buffer(0)]], device T *out [[buffer(1)]], constant uint &width [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]], uint member [[thread_index_in_threadgroup]],
                    uint members [[threads_per_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float largest_of[MOST_SIMDGROUPS], total_of[MOST_SIMDGROUPS];
    const ulong start = ulong(row) * width;
    constexpr uint KEPT = kept_elements<EACH>();
    float kept[KEPT], own = -INFINITY, total = 0.0f;
    FOR_KEPT { load<T, EACH>(x + start + place, kept + step * EACH); }
    FOR_KEPT {
        FOR_EACH { own = max(own, kept[step * EACH + i]); }
    }
    FOR_REST {
        float value[EACH];
        load<T, EACH>(x + start + place, value);
        FOR_EACH { own = max(own, value[i]); }
    }
    // Exponentials are first taken relative to the thread's own largest, so that threads meet once.
    const float base = own == -INFINITY ? 0.0f : own;
    FOR_KEPT {
        FOR_EACH {
            kept[step * EACH + i] = Functions<T>::exp_of(kept[step * EACH + i] - base);
            total += kept[step * EACH + i];
        }
    }
    FOR_REST {
        float value[EACH];
        load<T, EACH>(x + start + place, value);
        FOR_EACH { total += Functions<T>::exp_of(value[i] - base); }
    }
    const float of_simdgroup = simd_max(own);
    total = simd_sum(own == -INFINITY ? 0.0f : total * Functions<T>::exp_of(own - of_simdgroup));
    if (lane == 0) {
        largest_of[simdgroup] = of_simdgroup;
        total_of[simdgroup] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float others = lane < simdgroups ? largest_of[lane] : -INFINITY, largest = simd_max(others);
    const float whole = simd_sum(others == -INFINITY ? 0.0f : total_of[lane] * Functions<T>::exp_of(others - largest));
    const float scale = own == -INFINITY ? 0.0f / whole : Functions<T>::exp_of(own - largest) / whole;
    FOR_KEPT {
        float share[EACH];
        FOR_EACH { share[i] = kept[step * EACH + i] * scale; }
        store<T, EACH>(share, out + start + place);
    }
    FOR_REST {
        float value[EACH];
        load<T, EACH>(x + start + place, value);
        FOR_EACH { value[i] = Functions<T>::exp_of(value[i] - base) * scale; }
        store<T, EACH>(value, out + start + place);
    }
}

#define INSTANCE(T, EACH, WAY)                                                                                        \
    template [[host_name("softmax" WAY #T)]] kernel void softmax<T, EACH>(                                            \
        device const T *, device T *, constant uint &, uint, uint, uint, uint, uint, uint);
#define INSTANCES(T) INSTANCE(T, 1, "_") INSTANCE(T, 4, "_fours_")

INSTANCES(float)
INSTANCES(half)
INSTANCES(bfloat)
INSTANCE(half, 8, "_eights_")
INSTANCE(bfloat, 8, "_eights_")
