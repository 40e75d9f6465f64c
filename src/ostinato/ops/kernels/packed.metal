// Products of quantised weights with rows that are rounded to 8 bits, by products of four bytes.
//
// Weights are packed once, from the blocks of a file into tiles of 32 rows, one for each lane of a simdgroup: what the
// lanes read at a time lies side by side. Along a row a tile has a piece for each block of the format: 32 scales (half), 32
// minima if the format has them, scales and minima of parts (a byte each) in blocks of 256, and then the numbers. Numbers of
// 32 weights are BITS words for each lane: planes of 8, 4, 2 or 1 bits, such as 4 and 2 for numbers of six bits. A word of a
// plane holds four bytes for each of its shifts. So a few operations on words make four numbers in bytes, in the order of
// the weights, which dot_add multiplies with four numbers of x.
//
// A row of x is rounded in blocks of 32: numbers from −127 to 127, a scale, and the sums of both halves times the scale.

#include <metal_stdlib>
#include <ostinato>
using namespace metal;

#include "plain.h"
#include "formats.h"

constant constexpr uint LINE = 32;  // rows of a tile

/// How a format is packed: bits of a number, weights of a block and of its parts, minima (0 none, 1 one for the block, 2 one
/// for each part), and the number that stands for zero.
template <int B, int BLOCK, int PART, int MINIMA, int ZERO> struct layout {
    static constant constexpr int bits = B, block = BLOCK, part = PART, minima = MINIMA, zero = ZERO;
    static constant constexpr int parts = BLOCK == 256 ? BLOCK / PART : 0;
    static constant constexpr uint head = LINE * (2 + (MINIMA ? 2 : 0) + parts + (MINIMA == 2 ? parts : 0));
    static constant constexpr uint nbytes = head + LINE * BLOCK * B / 8;
};

template <typename F> struct packed_as;
template <> struct packed_as<q4_0> : layout<4, 32, 32, 0, 8> {};
template <> struct packed_as<q4_1> : layout<4, 32, 32, 1, 0> {};
template <> struct packed_as<q5_0> : layout<5, 32, 32, 0, 16> {};
template <> struct packed_as<q5_1> : layout<5, 32, 32, 1, 0> {};
template <> struct packed_as<q8_0> : layout<8, 32, 32, 0, 128> {};
template <> struct packed_as<iq4_nl> : layout<8, 32, 32, 0, 128> {};
template <> struct packed_as<q2_k> : layout<2, 256, 16, 2, 0> {};
template <> struct packed_as<q3_k> : layout<3, 256, 16, 0, 4> {};
template <> struct packed_as<q4_k> : layout<4, 256, 32, 2, 0> {};
template <> struct packed_as<q5_k> : layout<5, 256, 32, 2, 0> {};
template <> struct packed_as<q6_k> : layout<6, 256, 16, 0, 32> {};

// --- packing ---------------------------------------------------------------------------------------------------------

// `bits` bits of each byte of eight words, from the bit `from` on, as a plane.
inline void write_plane(thread const uint *numbers, device uint *to, uint from, uint bits) {
    const uint each = 8 / bits, mask = 0x01010101u * ((1u << bits) - 1);
    for (uint word = 0; word < 8 / each; ++word) {
        uint made = 0;
        for (uint i = 0; i < each; ++i) { made |= (numbers[word * each + i] >> from & mask) << i * bits; }
        to[word * LINE] = made;
    }
}

template <typename F> inline void write_scales(device const uchar *block, device uchar *piece, uint lane) {
    typedef packed_as<F> P;
    if constexpr (P::parts == 0) {
        ((device half *)piece)[lane] = *(device const half *)block;
        if constexpr (P::minima == 1) { ((device half *)piece)[LINE + lane] = *(device const half *)(block + 2); }
    } else {
        ((device half *)piece)[lane] = half(F::scale(block));
        device uchar *to = piece + LINE * (P::minima ? 4 : 2) + lane;
        if constexpr (P::minima == 2) { ((device half *)piece)[LINE + lane] = half(F::minimum(block)); }
        for (int part = 0; part < P::parts; ++part) {
            const uint at = part * (P::part / 16);
            to[part * LINE] = uchar(F::part_scale(block, at));
            if constexpr (P::minima == 2) { to[(P::parts + part) * LINE] = uchar(F::part_minimum(block, at)); }
        }
    }
}

/// Tiles from the blocks of a file. The grid is [rows, rounded up to whole tiles; width / 32]. Rows past the last are zeros.
template <typename F>
kernel void pack(device const uchar *weight [[buffer(0)]], device uchar *tiles [[buffer(1)]],
                 constant uint &width [[buffer(2)]], constant uint &rows [[buffer(3)]],
                 uint2 position [[thread_position_in_grid]]) {
    typedef packed_as<F> P;
    const uint row = position.x, chunk = position.y, lane = row % LINE, chunks = P::block / 32;
    const uint blocks = width / P::block, number = chunk / chunks;
    device uchar *piece = tiles + (ulong(row / LINE) * blocks + number) * P::nbytes;
    device uint *words = (device uint *)(piece + P::head) + chunk % chunks * P::bits * LINE + lane;
    if (row >= rows) {
        if (chunk % chunks == 0) {
            for (uint end = 0; end < (P::minima ? 2 : 1); ++end) {
                ((device half *)piece)[end * LINE + lane] = half(0);
            }
            for (uint at = LINE * (P::minima ? 4 : 2) + lane; at < P::head; at += LINE) { piece[at] = 0; }
        }
        for (int word = 0; word < P::bits; ++word) { words[word * LINE] = 0; }
        return;
    }
    device const uchar *block = weight + (ulong(row) * blocks + number) * F::nbytes();
    uint numbers[8];
    for (uint half_ = 0; half_ < 2; ++half_) {
        const Sixteen made = F::sixteen(block, chunk % chunks * 2 + half_);
        for (uint word = 0; word < 4; ++word) {
            uint four = 0;
            for (uint i = 0; i < 4; ++i) { four |= uint(made.numbers[4 * word + i]) << 8 * i; }
            numbers[4 * half_ + word] = four;
        }
    }
    if constexpr (P::bits == 8) { write_plane(numbers, words, 0, 8); }
    if constexpr (P::bits >= 4 && P::bits < 8) { write_plane(numbers, words, 0, 4); }
    if constexpr (P::bits == 6) { write_plane(numbers, words + 4 * LINE, 4, 2); }
    if constexpr (P::bits == 5) { write_plane(numbers, words + 4 * LINE, 4, 1); }
    if constexpr (P::bits < 4) { write_plane(numbers, words, 0, 2); }
    if constexpr (P::bits == 3) { write_plane(numbers, words + 2 * LINE, 2, 1); }
    if (chunk % chunks == 0) { write_scales<F>(block, piece, lane); }
}

// --- rounding --------------------------------------------------------------------------------------------------------

/// Rows of x in 8 bits: `numbers` [rows, width], and for each block of 32 its scale, two sums, and a zero in `scales`. The
/// grid is [width / 32, rows]; rows past the last one of x are zeros.
template <typename T>
kernel void round_rows(device const T *x [[buffer(0)]], device char *numbers [[buffer(1)]],
                       device float4 *scales [[buffer(2)]], constant uint &width [[buffer(3)]],
                       constant uint &rows [[buffer(4)]], uint2 position [[thread_position_in_grid]]) {
    const ulong block = ulong(position.y) * (width / 32) + position.x;
    device char *to = numbers + block * 32;
    float values[32], largest[32];
    const bool there = position.y < rows;
    for (int i = 0; i < 32; ++i) { values[i] = there ? wide(x + block * 32, i) : 0.0f; }
    for (int i = 0; i < 32; ++i) { largest[i] = fabs(values[i]); }
    for (int left = 16; left > 0; left /= 2) {
        for (int i = 0; i < left; ++i) { largest[i] = fmax(largest[i], largest[i + left]); }
    }
    const float scale = largest[0] / 127.0f, inverse = largest[0] > 0.0f ? 127.0f / largest[0] : 0.0f;
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
        const int number = int(rint(values[i] * inverse));
        to[i] = char(number);
        sums[i / 16] += number;
    }
    scales[block] = float4(scale, scale * float(sums[0]), scale * float(sums[1]), 0.0f);
}

// --- products --------------------------------------------------------------------------------------------------------

// The numbers of 32 weights of each lane, four in a word.
template <int BITS> inline void unpack(device const uint *words, thread uint *numbers) {
    const uint four = 0x0f0f0f0f, two = 0x03030303, one = 0x01010101;
#pragma unroll
    for (uint j = 0; j < 8; ++j) {
        if constexpr (BITS == 8) {
            numbers[j] = words[j * LINE];
        } else if constexpr (BITS >= 4) {
            numbers[j] = words[j / 2 * LINE] >> j % 2 * 4 & four;
            if constexpr (BITS == 6) { numbers[j] |= (words[(4 + j / 4) * LINE] >> j % 4 * 2 & two) << 4; }
            if constexpr (BITS == 5) { numbers[j] |= (words[4 * LINE] >> j & one) << 4; }
        } else {
            numbers[j] = words[j / 4 * LINE] >> j % 4 * 2 & two;
            if constexpr (BITS == 3) { numbers[j] |= (words[2 * LINE] >> j & one) << 2; }
        }
    }
}

template <int COUNT> inline float dot_of(thread const uint *numbers, device const uint *x) {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) { sum = ostinato::dot_add(as_type<uchar4>(numbers[j]), as_type<char4>(x[j]), sum); }
    return float(sum);
}

/// out[token, row] = weight[row] · x[token], where rows of out are `stride` apart. A group of 32 threads for each tile. x has
/// as many rows as there are tokens, rounded up to whole TOKENS.
template <typename F, typename T, int TOKENS>
kernel void multiply_packed(device const uchar *tiles [[buffer(0)]], device const uint *x [[buffer(1)]],
                            device const float4 *scales [[buffer(2)]], device T *out [[buffer(3)]],
                            constant uint &width [[buffer(4)]], constant uint &rows [[buffer(5)]],
                            constant uint &tokens [[buffer(6)]], constant uint &stride [[buffer(7)]],
                            uint tile [[threadgroup_position_in_grid]], uint lane [[thread_index_in_threadgroup]]) {
    typedef packed_as<F> P;
    const uint blocks = width / P::block, row = tile * LINE + lane;
    device const uchar *line = tiles + ulong(tile) * blocks * P::nbytes;
    for (uint token = 0; token < tokens; token += TOKENS) {
        float sums[TOKENS] = {};
        for (uint block = 0; block < blocks; ++block) {
            device const uchar *piece = line + ulong(block) * P::nbytes;
            device const half *ends = (device const half *)piece;
            device const char *parts = (device const char *)piece + LINE * (P::minima ? 4 : 2) + lane;
            const float scale = float(ends[lane]);
            const float minimum = P::minima ? float(ends[LINE + lane]) : 0.0f;
            for (uint chunk = 0; chunk < P::block / 32; ++chunk) {
                uint numbers[8];
                unpack<P::bits>((device const uint *)(piece + P::head) + chunk * P::bits * LINE + lane, numbers);
                const ulong first = ulong(token) * (width / 32) + block * (P::block / 32) + chunk;
                if constexpr (P::part == 32) {
                    float factor = scale, offset = P::minima ? minimum : -float(P::zero) * scale;
                    if constexpr (P::parts != 0) {
                        factor = scale * float(parts[chunk * LINE]);
                        offset = -minimum * float(parts[(P::parts + chunk) * LINE]);
                    }
#pragma unroll
                    for (int j = 0; j < TOKENS; ++j) {
                        const ulong at = first + ulong(j) * (width / 32);
                        const float4 ends_of_x = scales[at];
                        sums[j] += factor * (dot_of<8>(numbers, x + at * 8) * ends_of_x.x);
                        sums[j] += offset * (ends_of_x.y + ends_of_x.z);
                    }
                } else {
                    float factors[2], offsets[2];
#pragma unroll
                    for (uint side = 0; side < 2; ++side) {
                        factors[side] = scale * float(parts[(2 * chunk + side) * LINE]);
                        offsets[side] = P::minima ? -minimum * float(parts[(P::parts + 2 * chunk + side) * LINE])
                                                  : -float(P::zero) * factors[side];
                    }
#pragma unroll
                    for (int j = 0; j < TOKENS; ++j) {
                        const ulong at = first + ulong(j) * (width / 32);
                        const float4 ends_of_x = scales[at];
                        sums[j] += factors[0] * (dot_of<4>(numbers, x + at * 8) * ends_of_x.x);
                        sums[j] += factors[1] * (dot_of<4>(numbers + 4, x + at * 8 + 4) * ends_of_x.x);
                        sums[j] += offsets[0] * ends_of_x.y + offsets[1] * ends_of_x.z;
                    }
                }
            }
        }
        if (row < rows) {
#pragma unroll
            for (int j = 0; j < TOKENS; ++j) {
                if (token + j < tokens) { out[ulong(token + j) * stride + row] = T(sums[j]); }
            }
        }
    }
}

#define MULTIPLY(F, T, tokens)                                                                                        \
    template [[host_name("multiply_packed_" #F "_" #T "_" #tokens)]] kernel void multiply_packed<F, T, tokens>(       \
        device const uchar *, device const uint *, device const float4 *, device T *, constant uint &,                \
        constant uint &, constant uint &, constant uint &, uint, uint);
#define FORMAT(F)                                                                                                     \
    MULTIPLY(F, float, 1)                                                                                             \
    MULTIPLY(F, half, 1)                                                                                              \
    MULTIPLY(F, bfloat, 1)                                                                                            \
    MULTIPLY(F, float, 4)                                                                                             \
    MULTIPLY(F, half, 4)                                                                                              \
    MULTIPLY(F, bfloat, 4)                                                                                            \
    template [[host_name("pack_" #F)]] kernel void pack<F>(device const uchar *, device uchar *, constant uint &,     \
                                                           constant uint &, uint2);
#define ROUND(T)                                                                                                      \
    template [[host_name("round_rows_" #T)]] kernel void round_rows<T>(device const T *, device char *,               \
                                                                       device float4 *, constant uint &,              \
                                                                       constant uint &, uint2);

FORMAT(q4_0)
FORMAT(q4_1)
FORMAT(q5_0)
FORMAT(q5_1)
FORMAT(q8_0)
FORMAT(iq4_nl)
FORMAT(q2_k)
FORMAT(q3_k)
FORMAT(q4_k)
FORMAT(q5_k)
FORMAT(q6_k)
ROUND(float)
ROUND(half)
ROUND(bfloat)
