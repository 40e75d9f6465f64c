// Products of quantised weights with rows that are rounded to 8 bits, by products of four bytes.
//
// Weights are packed once, from the blocks of a file into tiles of 32 rows, one for each lane of a simdgroup: what the
// lanes read at a time lies side by side. Along a row a tile has a piece for each block of the format: the scales and minima
// of the block (half), and then for every 32 weights the scales and minima of their parts (a byte each), if blocks have 256
// weights, and their numbers. That is the order in which all of it is read: processors see the next lines coming.
//
// Numbers of 32 weights are BITS words for each lane: planes of 8, 4, 2 or 1 bits, such as 4 and 2 for numbers of six bits.
// A word of a plane holds four bytes for each of its shifts. So a few operations on words make four numbers in bytes, in the
// order of the weights, which dot_add multiplies with four numbers of x.
//
// A row of x is rounded in blocks of 32: numbers from −127 to 127, a scale, and the sums of both halves.

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
    // Bytes of a piece: of the block's own scales, of a part's, and of 32 weights with those of their parts.
    static constant constexpr uint ends = LINE * (MINIMA ? 4 : 2), of_part = LINE * (MINIMA == 2 ? 2 : 1);
    static constant constexpr uint of_parts = parts ? 32 / PART * of_part : 0, chunk = of_parts + LINE * 4 * B;
    static constant constexpr uint nbytes = ends + BLOCK / 32 * chunk;
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

// The scales of a row's block, or zeros where there is no row (`block` is null).
template <typename F> inline void write_scales(device const uchar *block, device uchar *piece, uint lane) {
    typedef packed_as<F> P;
    device half *ends = (device half *)piece;
    if constexpr (P::parts == 0) {
        ends[lane] = block ? *(device const half *)block : half(0);
        if constexpr (P::minima == 1) { ends[LINE + lane] = block ? *(device const half *)(block + 2) : half(0); }
    } else {
        ends[lane] = block ? half(F::scale(block)) : half(0);
        if constexpr (P::minima == 2) { ends[LINE + lane] = block ? half(F::minimum(block)) : half(0); }
        for (uint part = 0; part < P::parts; ++part) {
            const uint sides = 32 / P::part, at = part * (P::part / 16);
            device uchar *to = piece + P::ends + part / sides * P::chunk + part % sides * P::of_part + lane;
            to[0] = block ? uchar(F::part_scale(block, at)) : uchar(0);
            if constexpr (P::minima == 2) { to[LINE] = block ? uchar(F::part_minimum(block, at)) : uchar(0); }
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
    device uint *words = (device uint *)(piece + P::ends + chunk % chunks * P::chunk + P::of_parts) + lane;
    if (row >= rows) {
        if (chunk % chunks == 0) { write_scales<F>(nullptr, piece, lane); }
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

/// Rows of x in 8 bits: `numbers` [rows, width], and for each block of 32 its scale, the sums of its halves times the scale,
/// and both sums as they are in 16 bits each. The grid is [width / 32, rows]; rows past the last one of x are zeros.
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
    const float totals = as_type<float>(short2(short(sums[0]), short(sums[1])));
    scales[block] = float4(scale, scale * float(sums[0]), scale * float(sums[1]), totals);
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

// The products of 4 · COUNT numbers with those of a row, counted from `zero`; `total` is the sum of the row's numbers.
template <int COUNT, int ZERO> inline float dot_of(thread const uint *numbers, device const uint *x, int total) {
    int sum = -ZERO * total;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) { sum = ostinato::dot_add(as_type<uchar4>(numbers[j]), as_type<char4>(x[j]), sum); }
    return float(sum);
}

/// out[token, row] = weight[row] · x[token], where rows of out are `stride` apart. A simdgroup for each tile. x has as many
/// rows as there are tokens, rounded up to whole TOKENS.
template <typename F, typename T, int TOKENS>
kernel void multiply_packed(device const uchar *tiles [[buffer(0)]], device const uint *x [[buffer(1)]],
                            device const float4 *scales [[buffer(2)]], device T *out [[buffer(3)]],
                            constant uint &width [[buffer(4)]], constant uint &rows [[buffer(5)]],
                            constant uint &tokens [[buffer(6)]], constant uint &stride [[buffer(7)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    typedef packed_as<F> P;
    const uint tile = group * simdgroups + simdgroup, blocks = width / P::block, row = tile * LINE + lane;
    if (tile * LINE >= rows) { return; }
    device const uchar *line = tiles + ulong(tile) * blocks * P::nbytes;
    const ulong step = width / 32;  // blocks of a row of x
    for (uint token = 0; token < tokens; token += TOKENS) {
        float sums[TOKENS] = {};
        for (uint block = 0; block < blocks; ++block) {
            device const uchar *piece = line + ulong(block) * P::nbytes;
            const float scale = float(((device const half *)piece)[lane]);
            const float minimum = P::minima ? float(((device const half *)piece)[LINE + lane]) : 0.0f;
            for (uint chunk = 0; chunk < P::block / 32; ++chunk) {
                uint numbers[8];
                device const uchar *place = piece + P::ends + chunk * P::chunk;
                device const char *part = (device const char *)place + lane;
                unpack<P::bits>((device const uint *)(place + P::of_parts) + lane, numbers);
                const ulong first = ulong(token) * step + block * (P::block / 32) + chunk;
                if constexpr (P::part == 32) {
                    float factor = scale, offset = minimum;
                    if constexpr (P::parts != 0) {
                        factor = scale * float(part[0]);
                        offset = -minimum * float(part[LINE]);
                    }
#pragma unroll
                    for (int j = 0; j < TOKENS; ++j) {
                        const ulong at = first + j * step;
                        const float4 row_of_x = scales[at];
                        const short2 totals = as_type<short2>(row_of_x.w);
                        const int total = int(totals.x) + int(totals.y);
                        sums[j] += factor * (dot_of<8, P::zero>(numbers, x + at * 8, total) * row_of_x.x);
                        if constexpr (P::minima != 0) { sums[j] += offset * (row_of_x.y + row_of_x.z); }
                    }
                } else {
                    const float left = scale * float(part[0]), right = scale * float(part[P::of_part]);
                    float offsets[2] = {0.0f, 0.0f};
                    if constexpr (P::minima != 0) {
                        offsets[0] = -minimum * float(part[LINE]);
                        offsets[1] = -minimum * float(part[P::of_part + LINE]);
                    }
#pragma unroll
                    for (int j = 0; j < TOKENS; ++j) {
                        const ulong at = first + j * step;
                        const float4 row_of_x = scales[at];
                        const short2 totals = as_type<short2>(row_of_x.w);
                        const float both = left * dot_of<4, P::zero>(numbers, x + at * 8, totals.x) +
                                           right * dot_of<4, P::zero>(numbers + 4, x + at * 8 + 4, totals.y);
                        sums[j] += both * row_of_x.x;
                        if constexpr (P::minima != 0) { sums[j] += offsets[0] * row_of_x.y + offsets[1] * row_of_x.z; }
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
        constant uint &, constant uint &, constant uint &, uint, uint, uint, uint);
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
