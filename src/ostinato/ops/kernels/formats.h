// Quantised weights, 16 at a time. A format is a struct with `weights()` and `nbytes()` of a block and `sixteen(block,
// part)`: the numbers of 16 neighbouring weights with their scale and offset. ops/formats.py has the same in NumPy.
// Blocks start at even addresses, so halves in them are read as such; nothing wider is.
//
// In blocks of 256 a scale is the product of `scale(block)` and a small number for each part, and so is an offset.

/// A weight is scale · number + offset.
struct Sixteen {
    float scale, offset;
    uchar numbers[16];
};

inline float half_at(device const uchar *place) { return float(*(device const half *)place); }
inline uint ushort_at(device const uchar *place) { return uint(*(device const ushort *)place); }

/// Numbers around `zero` with one scale for all of them.
inline void centre(thread Sixteen &made, float scale, float zero) {
    made.scale = scale;
    made.offset = -zero * scale;
}

/// `bits` bits of 16 bytes, from the bit `shift` on.
inline void take(thread Sixteen &made, device const uchar *bytes, uint shift, uint bits) {
    for (int i = 0; i < 16; ++i) { made.numbers[i] = uchar(uint(bytes[i]) >> shift & ((1u << bits) - 1)); }
}
/// The same, added from the bit `above` on.
inline void add(thread Sixteen &made, device const uchar *bytes, uint shift, uint bits, uint above) {
    for (int i = 0; i < 16; ++i) {
        made.numbers[i] = uchar(made.numbers[i] | (uint(bytes[i]) >> shift & ((1u << bits) - 1)) << above);
    }
}
/// One bit for each number, from a word of 16.
inline void add_fifth(thread Sixteen &made, uint ones) {
    for (int i = 0; i < 16; ++i) { made.numbers[i] = uchar(made.numbers[i] | (ones >> i & 1) << 4); }
}

struct q4_0 {
    static uint weights() { return 32; }
    static uint nbytes() { return 18; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, half_at(block), 8.0f);
        take(made, block + 2, 4 * part, 4);
        return made;
    }
};

struct q4_1 {
    static uint weights() { return 32; }
    static uint nbytes() { return 20; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        made.scale = half_at(block);
        made.offset = half_at(block + 2);
        take(made, block + 4, 4 * part, 4);
        return made;
    }
};

struct q5_0 {
    static uint weights() { return 32; }
    static uint nbytes() { return 22; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, half_at(block), 16.0f);
        take(made, block + 6, 4 * part, 4);
        add_fifth(made, ushort_at(block + 2 + 2 * part));
        return made;
    }
};

struct q5_1 {
    static uint weights() { return 32; }
    static uint nbytes() { return 24; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        made.scale = half_at(block);
        made.offset = half_at(block + 2);
        take(made, block + 8, 4 * part, 4);
        add_fifth(made, ushort_at(block + 4 + 2 * part));
        return made;
    }
};

struct q8_0 {
    static uint weights() { return 32; }
    static uint nbytes() { return 34; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, half_at(block), 128.0f);
        for (int i = 0; i < 16; ++i) { made.numbers[i] = uchar(block[2 + 16 * part + i] ^ 128); }
        return made;
    }
};

// What the numbers of iq4_nl stand for, above −128.
constant constexpr uchar CURVE[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

struct iq4_nl {
    static uint weights() { return 32; }
    static uint nbytes() { return 18; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, half_at(block), 128.0f);
        for (int i = 0; i < 16; ++i) { made.numbers[i] = CURVE[uint(block[2 + i]) >> 4 * part & 15]; }
        return made;
    }
};

// Eight scales and eight minima of six bits in 12 bytes.
inline uint scale_of_six_bits(device const uchar *packed, uint at) {
    return at < 4 ? packed[at] & 63u : (packed[at + 4] & 15u) | (packed[at - 4] >> 2 & 48u);
}
inline uint minimum_of_six_bits(device const uchar *packed, uint at) {
    return at < 4 ? packed[at + 4] & 63u : uint(packed[at + 4] >> 4) | (packed[at] >> 2 & 48u);
}

struct q4_k {
    static uint weights() { return 256; }
    static uint nbytes() { return 144; }
    static float scale(device const uchar *block) { return half_at(block); }
    static float minimum(device const uchar *block) { return half_at(block + 2); }
    static int part_scale(device const uchar *block, uint part) { return scale_of_six_bits(block + 4, part / 2); }
    static int part_minimum(device const uchar *block, uint part) { return minimum_of_six_bits(block + 4, part / 2); }
    static Sixteen sixteen(device const uchar *block, uint part) {
        const uint at = part / 2;
        Sixteen made;
        made.scale = scale(block) * float(part_scale(block, part));
        made.offset = -minimum(block) * float(part_minimum(block, part));
        take(made, block + 16 + at / 2 * 32 + part % 2 * 16, at % 2 * 4, 4);
        return made;
    }
};

struct q5_k {
    static uint weights() { return 256; }
    static uint nbytes() { return 176; }
    static float scale(device const uchar *block) { return half_at(block); }
    static float minimum(device const uchar *block) { return half_at(block + 2); }
    static int part_scale(device const uchar *block, uint part) { return scale_of_six_bits(block + 4, part / 2); }
    static int part_minimum(device const uchar *block, uint part) { return minimum_of_six_bits(block + 4, part / 2); }
    static Sixteen sixteen(device const uchar *block, uint part) {
        const uint at = part / 2;
        Sixteen made;
        made.scale = scale(block) * float(part_scale(block, part));
        made.offset = -minimum(block) * float(part_minimum(block, part));
        take(made, block + 48 + at / 2 * 32 + part % 2 * 16, at % 2 * 4, 4);
        add(made, block + 16 + part % 2 * 16, at, 1, 4);
        return made;
    }
};

struct q2_k {
    static uint weights() { return 256; }
    static uint nbytes() { return 84; }
    static float scale(device const uchar *block) { return half_at(block + 80); }
    static float minimum(device const uchar *block) { return half_at(block + 82); }
    static int part_scale(device const uchar *block, uint part) { return block[part] & 15; }
    static int part_minimum(device const uchar *block, uint part) { return block[part] >> 4; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        made.scale = scale(block) * float(part_scale(block, part));
        made.offset = -minimum(block) * float(part_minimum(block, part));
        take(made, block + 16 + part / 8 * 32 + part % 2 * 16, part % 8 / 2 * 2, 2);
        return made;
    }
};

struct q3_k {
    static uint weights() { return 256; }
    static uint nbytes() { return 110; }
    static float scale(device const uchar *block) { return half_at(block + 108); }
    static float minimum(device const uchar *) { return 0.0f; }
    static int part_scale(device const uchar *block, uint part) {
        const uint low = uint(block[96 + part % 8]) >> part / 8 * 4 & 15;
        const uint high = uint(block[104 + part % 4]) >> part / 4 * 2 & 3;
        return int(low | high << 4) - 32;
    }
    static int part_minimum(device const uchar *, uint) { return 0; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, scale(block) * float(part_scale(block, part)), 4.0f);
        take(made, block + 32 + part / 8 * 32 + part % 2 * 16, part % 8 / 2 * 2, 2);
        add(made, block + part % 2 * 16, part / 2, 1, 2);
        return made;
    }
};

struct q6_k {
    static uint weights() { return 256; }
    static uint nbytes() { return 210; }
    static float scale(device const uchar *block) { return half_at(block + 208); }
    static float minimum(device const uchar *) { return 0.0f; }
    static int part_scale(device const uchar *block, uint part) { return as_type<char>(block[192 + part]); }
    static int part_minimum(device const uchar *, uint) { return 0; }
    static Sixteen sixteen(device const uchar *block, uint part) {
        Sixteen made;
        centre(made, scale(block) * float(part_scale(block, part)), 32.0f);
        take(made, block + part / 8 * 64 + part % 4 * 16, part % 8 / 4 * 4, 4);
        add(made, block + 128 + part / 8 * 32 + part % 2 * 16, part % 8 / 2 * 2, 2, 4);
        return made;
    }
};

// MLX's: a group's numbers as bits, then its scale and its bias.
constant uint AFFINE_BITS [[function_constant(0)]];
constant uint AFFINE_GROUP [[function_constant(1)]];

template <typename S> struct affine {
    static uint weights() { return AFFINE_GROUP; }
    static uint nbytes() { return AFFINE_GROUP * AFFINE_BITS / 8 + 2 * sizeof(S); }
    static Sixteen sixteen(device const uchar *block, uint part) {
        device const S *ends = (device const S *)(block + AFFINE_GROUP * AFFINE_BITS / 8);
        device const uchar *bytes = block + part * 2 * AFFINE_BITS;
        Sixteen made;
        made.scale = float(ends[0]);
        made.offset = float(ends[1]);
        for (uint i = 0; i < 16; ++i) {
            const uint bit = i * AFFINE_BITS, at = bit / 8;
            const uint two = bytes[at] | uint(bytes[at + 1]) << 8;
            made.numbers[i] = uchar(two >> bit % 8 & ((1u << AFFINE_BITS) - 1));
        }
        return made;
    }
};

/// The weights of a row from 16 · `part` on.
template <typename F> struct quantised {
    static ulong row_bytes(uint width) { return ulong(width / F::weights()) * F::nbytes(); }
    static void sixteen(device const uchar *row, uint part, thread float *weights) {
        const uint parts = F::weights() / 16;
        const Sixteen made = F::sixteen(row + ulong(part / parts) * F::nbytes(), part % parts);
        for (int i = 0; i < 16; ++i) { weights[i] = made.scale * float(made.numbers[i]) + made.offset; }
    }
};

/// The same for weights that are not quantised.
template <typename T> struct dense {
    static ulong row_bytes(uint width) { return ulong(width) * sizeof(T); }
    static void sixteen(device const uchar *row, uint part, thread float *weights) {
        for (int i = 0; i < 16; ++i) { weights[i] = wide((device const T *)row + 16 * part, i); }
    }
};
