// Causal attention of many tokens to the cached keys and values by simdgroup matrices, for a GPU. attention.metal is for
// few tokens, and for heads of other sizes.
//
// A group takes a head of 64 tokens, 16 per simdgroup. It stages 64 keys and values at a time in threadgroup memory. The
// scores of these keys stay in registers: a running softmax rescales the sums when a larger score comes, so no matrix of
// all scores exists. Weights are rounded to the stored type before they multiply the values; sums are in float.
//
// A lane's two elements of a simdgroup matrix lie side by side in one row, and four lanes share a row. Their places
// follow from the lane's number, see ROW_OF_LANE.

#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

constant constexpr uint SIMD = 32;
constant constexpr uint SIMDGROUPS = 4;
constant constexpr uint KEYS = 64;  // keys at a time
constant constexpr uint DOWN = 2;   // tiles of 8 tokens per simdgroup
constant constexpr uint TOKENS = 8 * DOWN * SIMDGROUPS;
constant constexpr uint PAD = 8;  // between rows in threadgroup memory, so that a tile's rows lie in different banks
#define EACH(i, count) _Pragma("clang loop unroll(full)") for (uint i = 0; i < count; ++i)
constant constexpr float LOG2_E = 1.4426950408889634f;

#define ROW_OF_LANE ((lane >> 4 & 1) * 4 + (lane >> 1 & 3))
#define COLUMN_OF_LANE ((lane >> 3 & 1) * 4 + (lane & 1) * 2)

// Copies rows of SIZE elements into threadgroup memory; rows from `there` on are zero.
template <typename T, uint SIZE>
inline void stage(device const uint4 *from, ulong words_per_row, uint there, threadgroup uint4 *to, uint member) {
    constexpr uint WORDS = SIZE * sizeof(T) / 16, ROW = (SIZE + PAD) * sizeof(T) / 16;
    for (uint at = member; at < KEYS * WORDS; at += SIMD * SIMDGROUPS) {
        const uint row = at / WORDS, word = at % WORDS;
        to[row * ROW + word] = row < there ? from[row * words_per_row + word] : uint4(0);
    }
}

// The grid is [blocks of tokens, heads] groups of 128 threads.
template <typename T, uint SIZE>
[[max_total_threads_per_threadgroup(SIMD * SIMDGROUPS)]]
kernel void attend_tiles(device const T *queries [[buffer(0)]], device const T *keys [[buffer(1)]],
                         device const T *values [[buffer(2)]], device T *out [[buffer(3)]],
                         constant uint &position [[buffer(4)]], constant uint &tokens [[buffer(5)]],
                         constant uint &queries_per_key [[buffer(6)]], constant uint &capacity [[buffer(7)]],
                         constant uint &window [[buffer(8)]], constant float &scale [[buffer(9)]],
                         constant float &cap [[buffer(10)]], uint2 group [[threadgroup_position_in_grid]],
                         uint2 extent [[threadgroups_per_grid]], uint member [[thread_index_in_threadgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint ACROSS = KEYS / 8, DEEP = SIZE / 8, ROW = SIZE + PAD, WORDS = SIZE * sizeof(T) / 16;
    threadgroup uint4 staged[2 * KEYS * ROW * sizeof(T) / 16];
    threadgroup T *key_tile = (threadgroup T *)staged, *value_tile = key_tile + KEYS * ROW;
    // The last blocks see the most keys, so they begin first.
    const uint head = group.y, heads = extent.y, first_token = (extent.x - 1 - group.x) * TOKENS;
    const ulong kept = ulong(head / queries_per_key) * capacity * WORDS;
    device const uint4 *key_words = (device const uint4 *)keys + kept;
    device const uint4 *value_words = (device const uint4 *)values + kept;

    // Tokens are staged where keys will be: TOKENS and KEYS are the same.
    stage<T, SIZE>((device const uint4 *)queries + (ulong(first_token) * heads + head) * WORDS, ulong(heads) * WORDS,
                   tokens - first_token, staged, member);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<T, 8, 8> query[DOWN][DEEP];
    EACH(i, DOWN) {
        EACH(k, DEEP) { simdgroup_load(query[i][k], key_tile + (simdgroup * DOWN + i) * 8 * ROW + k * 8, ROW); }
    }

    // `seen` is one past the last key that a lane's token attends to; `unseen` is the first one that it attends to.
    const uint mine = first_token + simdgroup * DOWN * 8;
    const uint end = min(position + min(first_token + TOKENS, tokens), capacity);
    const uint oldest = position + first_token + 1;
    const uint begin = window && oldest > window ? (oldest - window) / KEYS * KEYS : 0;
    simdgroup_matrix<float, 8, 8> sums[DOWN][DEEP];
    float largest[DOWN], total[DOWN];
    EACH(i, DOWN) {
        EACH(j, DEEP) { sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
        largest[i] = -INFINITY;
        total[i] = 0.0f;
    }
    for (uint first = begin; first < end; first += KEYS) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        stage<T, SIZE>(key_words + ulong(first) * WORDS, WORDS, end - first, staged, member);
        stage<T, SIZE>(value_words + ulong(first) * WORDS, WORDS, end - first, staged + KEYS * ROW * sizeof(T) / 16,
                       member);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<float, 8, 8> scores[DOWN][ACROSS];
        EACH(j, ACROSS) {
            EACH(i, DOWN) { scores[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
            EACH(k, DEEP) {
                simdgroup_matrix<T, 8, 8> key;
                simdgroup_load(key, key_tile + j * 8 * ROW + k * 8, ROW, ulong2(0), true);
                EACH(i, DOWN) { simdgroup_multiply_accumulate(scores[i][j], query[i][k], key, scores[i][j]); }
            }
        }
        // Inside, all tokens of a simdgroup attend to all of the keys.
        const bool inside = first + KEYS <= position + mine + 1 && !window;
        EACH(i, DOWN) {
            const uint seen = min(position + mine + i * 8 + ROW_OF_LANE + 1, end);
            const uint unseen = window && seen > window ? seen - window : 0;
            float top = largest[i];
            EACH(j, ACROSS) {
                const uint at = first + j * 8 + COLUMN_OF_LANE;
                float2 score = scores[i][j].thread_elements() * scale;
                if (cap > 0.0f) { score = cap * tanh(score / cap); }
                if (!inside) {
                    score.x = at < seen && at >= unseen ? score.x : -INFINITY;
                    score.y = at + 1 < seen && at + 1 >= unseen ? score.y : -INFINITY;
                }
                scores[i][j].thread_elements() = score;
                top = max(top, max(score.x, score.y));
            }
            top = max(top, simd_shuffle_xor(top, ushort(1)));
            top = max(top, simd_shuffle_xor(top, ushort(8)));
            // A token that has seen no key yet has nothing to rescale; −∞ − −∞ would not be a number.
            const float from = top == -INFINITY ? 0.0f : top * LOG2_E;
            const float shrink = exp2(fma(largest[i], LOG2_E, -from));
            float weight = 0.0f;
            EACH(j, ACROSS) {
                const float2 score = scores[i][j].thread_elements();
                const float2 part = float2(exp2(fma(score.x, LOG2_E, -from)), exp2(fma(score.y, LOG2_E, -from)));
                scores[i][j].thread_elements() = part;
                weight += part.x + part.y;
            }
            total[i] = total[i] * shrink + weight;
            largest[i] = top;
            EACH(j, DEEP) { sums[i][j].thread_elements() *= shrink; }
        }
        EACH(k, ACROSS) {
            simdgroup_matrix<T, 8, 8> weights[DOWN];
            EACH(i, DOWN) { weights[i].thread_elements() = vec<T, 2>(scores[i][k].thread_elements()); }
            EACH(j, DEEP) {
                simdgroup_matrix<T, 8, 8> value;
                simdgroup_load(value, value_tile + k * 8 * ROW + j * 8, ROW);
                EACH(i, DOWN) { simdgroup_multiply_accumulate(sums[i][j], weights[i], value, sums[i][j]); }
            }
        }
    }
    EACH(i, DOWN) {
        const uint token = mine + i * 8 + ROW_OF_LANE;
        float whole = total[i];
        whole += simd_shuffle_xor(whole, ushort(1));
        whole += simd_shuffle_xor(whole, ushort(8));
        if (token < tokens) {
            device T *row = out + (ulong(token) * heads + head) * SIZE + COLUMN_OF_LANE;
            EACH(j, DEEP) {
                const float2 both = sums[i][j].thread_elements() / whole;
                row[j * 8] = T(both.x);
                row[j * 8 + 1] = T(both.y);
            }
        }
    }
}

#define INSTANCE(T, SIZE)                                                                                             \
    template [[host_name("attend_tiles_" #T "_" #SIZE)]] kernel void attend_tiles<T, SIZE>(                           \
        device const T *, device const T *, device const T *, device T *, constant uint &, constant uint &,           \
        constant uint &, constant uint &, constant uint &, constant float &, constant float &, uint2, uint2, uint,    \
        uint, uint);
#define INSTANCES(T) INSTANCE(T, 64) INSTANCE(T, 96) INSTANCE(T, 128)

INSTANCES(half)
INSTANCES(bfloat)
