// Rows in parts of 16 bytes: products, and normalised elements.
#pragma once

#include <metal_stdlib>
using namespace metal;

// The product of the elements in 16 bytes of two rows.
template <typename T> inline float product_of_16_bytes(uint4 a, uint4 b);
template <> inline float product_of_16_bytes<float>(uint4 a, uint4 b) {
    return dot(as_type<float4>(a), as_type<float4>(b));
}
inline float product_of_halves(uint a, uint b) { return dot(float2(as_type<half2>(a)), float2(as_type<half2>(b))); }
template <> inline float product_of_16_bytes<half>(uint4 a, uint4 b) {
    return (product_of_halves(a.x, b.x) + product_of_halves(a.y, b.y)) +
           (product_of_halves(a.z, b.z) + product_of_halves(a.w, b.w));
}
inline float product_of_bfloats(uint a, uint b) {
    return as_type<float>(a << 16) * as_type<float>(b << 16) +
           as_type<float>(a & 0xffff0000) * as_type<float>(b & 0xffff0000);
}
template <> inline float product_of_16_bytes<bfloat>(uint4 a, uint4 b) {
    return (product_of_bfloats(a.x, b.x) + product_of_bfloats(a.y, b.y)) +
           (product_of_bfloats(a.z, b.z) + product_of_bfloats(a.w, b.w));
}

// The elements in 16 bytes of two rows multiplied, and scaled, and rounded once.
template <typename T> inline uint4 scaled_16_bytes(uint4 a, uint4 b, float scale);
template <> inline uint4 scaled_16_bytes<float>(uint4 a, uint4 b, float scale) {
    return as_type<uint4>(as_type<float4>(a) * scale * as_type<float4>(b));
}
inline uint scaled_halves(uint a, uint b, float scale) {
    return as_type<uint>(half2(float2(as_type<half2>(a)) * scale * float2(as_type<half2>(b))));
}
template <> inline uint4 scaled_16_bytes<half>(uint4 a, uint4 b, float scale) {
    return uint4(scaled_halves(a.x, b.x, scale), scaled_halves(a.y, b.y, scale), scaled_halves(a.z, b.z, scale),
                 scaled_halves(a.w, b.w, scale));
}
inline uint scaled_bfloats(uint a, uint b, float scale) {
    const bfloat low = bfloat(as_type<float>(a << 16) * scale * as_type<float>(b << 16));
    const bfloat high = bfloat(as_type<float>(a & 0xffff0000) * scale * as_type<float>(b & 0xffff0000));
    return uint(as_type<ushort>(low)) | uint(as_type<ushort>(high)) << 16;
}
template <> inline uint4 scaled_16_bytes<bfloat>(uint4 a, uint4 b, float scale) {
    return uint4(scaled_bfloats(a.x, b.x, scale), scaled_bfloats(a.y, b.y, scale), scaled_bfloats(a.z, b.z, scale),
                 scaled_bfloats(a.w, b.w, scale));
}
