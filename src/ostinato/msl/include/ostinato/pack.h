// <metal_pack>: normalised integers packed into words, and back.
#pragma once

namespace __ost {

// Rounds to nearest even after clamping; a NaN packs as 0.
OST_FN int packed_norm(float x, float low, float scale) {
  x = x > low ? x : low;
  x = x < 1.0f ? x : 1.0f;
  return int(__builtin_rintf(x * scale));
}
OST_FN int packed_snorm(float x, float scale) { return x != x ? 0 : packed_norm(x, -1.0f, scale); }
OST_FN float unpacked_snorm(int x, float scale) {
  float f = float(x) / scale;
  return f < -1.0f ? -1.0f : f;
}
OST_FN float linear_of_srgb(float s) { return s <= 0.04045f ? s / 12.92f : fn_pow::of((s + 0.055f) / 1.055f, 2.4f); }
OST_FN float srgb_of_linear(float c) {
  c = c > 0.0f ? (c < 1.0f ? c : 1.0f) : 0.0f;
  return c < 0.0031308f ? 12.92f * c : 1.055f * fn_pow::of(c, 1.0f / 2.4f) - 0.055f;
}

}  // namespace __ost

namespace metal {

OST_FN float4 unpack_unorm4x8_to_float(uint x) {
  return float4(float(x & 0xffu), float((x >> 8) & 0xffu), float((x >> 16) & 0xffu), float(x >> 24)) / 255.0f;
}
OST_FN float4 unpack_snorm4x8_to_float(uint x) {
  return float4(__ost::unpacked_snorm(int8_t(x), 127.0f), __ost::unpacked_snorm(int8_t(x >> 8), 127.0f),
                __ost::unpacked_snorm(int8_t(x >> 16), 127.0f), __ost::unpacked_snorm(int8_t(x >> 24), 127.0f));
}
OST_FN float4 unpack_unorm4x8_srgb_to_float(uint x) {
  float4 s = unpack_unorm4x8_to_float(x);
  return float4(__ost::linear_of_srgb(s.x), __ost::linear_of_srgb(s.y), __ost::linear_of_srgb(s.z), s.w);
}
OST_FN float2 unpack_unorm2x16_to_float(uint x) { return float2(float(x & 0xffffu), float(x >> 16)) / 65535.0f; }
OST_FN float2 unpack_snorm2x16_to_float(uint x) {
  return float2(__ost::unpacked_snorm(int16_t(x), 32767.0f), __ost::unpacked_snorm(int16_t(x >> 16), 32767.0f));
}
OST_FN float4 unpack_unorm10a2_to_float(uint x) {
  return float4(float(x & 0x3ffu) / 1023.0f, float((x >> 10) & 0x3ffu) / 1023.0f, float((x >> 20) & 0x3ffu) / 1023.0f,
                float(x >> 30) / 3.0f);
}
OST_FN float3 unpack_unorm565_to_float(ushort x) {
  return float3(float(x & 0x1fu) / 31.0f, float((x >> 5) & 0x3fu) / 63.0f, float(x >> 11) / 31.0f);
}
OST_FN half4 unpack_unorm4x8_to_half(uint x) { return half4(unpack_unorm4x8_to_float(x)); }
OST_FN half4 unpack_snorm4x8_to_half(uint x) { return half4(unpack_snorm4x8_to_float(x)); }
OST_FN half4 unpack_unorm4x8_srgb_to_half(uint x) { return half4(unpack_unorm4x8_srgb_to_float(x)); }
OST_FN half2 unpack_unorm2x16_to_half(uint x) { return half2(unpack_unorm2x16_to_float(x)); }
OST_FN half2 unpack_snorm2x16_to_half(uint x) { return half2(unpack_snorm2x16_to_float(x)); }
OST_FN half4 unpack_unorm10a2_to_half(uint x) { return half4(unpack_unorm10a2_to_float(x)); }
OST_FN half3 unpack_unorm565_to_half(ushort x) { return half3(unpack_unorm565_to_float(x)); }

OST_FN uint pack_float_to_unorm4x8(float4 x) {
  return uint(__ost::packed_norm(x.x, 0, 255)) | uint(__ost::packed_norm(x.y, 0, 255)) << 8 |
         uint(__ost::packed_norm(x.z, 0, 255)) << 16 | uint(__ost::packed_norm(x.w, 0, 255)) << 24;
}
OST_FN uint pack_float_to_snorm4x8(float4 x) {
  return uint(uint8_t(__ost::packed_snorm(x.x, 127))) | uint(uint8_t(__ost::packed_snorm(x.y, 127))) << 8 |
         uint(uint8_t(__ost::packed_snorm(x.z, 127))) << 16 | uint(uint8_t(__ost::packed_snorm(x.w, 127))) << 24;
}
OST_FN uint pack_float_to_srgb_unorm4x8(float4 x) {
  return pack_float_to_unorm4x8(
      float4(__ost::srgb_of_linear(x.x), __ost::srgb_of_linear(x.y), __ost::srgb_of_linear(x.z), x.w));
}
OST_FN uint pack_float_to_unorm2x16(float2 x) {
  return uint(__ost::packed_norm(x.x, 0, 65535)) | uint(__ost::packed_norm(x.y, 0, 65535)) << 16;
}
OST_FN uint pack_float_to_snorm2x16(float2 x) {
  return uint(uint16_t(__ost::packed_snorm(x.x, 32767))) | uint(uint16_t(__ost::packed_snorm(x.y, 32767))) << 16;
}
OST_FN uint pack_float_to_unorm10a2(float4 x) {
  return uint(__ost::packed_norm(x.x, 0, 1023)) | uint(__ost::packed_norm(x.y, 0, 1023)) << 10 |
         uint(__ost::packed_norm(x.z, 0, 1023)) << 20 | uint(__ost::packed_norm(x.w, 0, 3)) << 30;
}
OST_FN ushort pack_float_to_unorm565(float3 x) {
  return ushort(__ost::packed_norm(x.x, 0, 31) | __ost::packed_norm(x.y, 0, 63) << 5 |
                __ost::packed_norm(x.z, 0, 31) << 11);
}
OST_FN uint pack_half_to_unorm4x8(half4 x) { return pack_float_to_unorm4x8(float4(x)); }
OST_FN uint pack_half_to_snorm4x8(half4 x) { return pack_float_to_snorm4x8(float4(x)); }
OST_FN uint pack_half_to_srgb_unorm4x8(half4 x) { return pack_float_to_srgb_unorm4x8(float4(x)); }
OST_FN uint pack_half_to_unorm2x16(half2 x) { return pack_float_to_unorm2x16(float2(x)); }
OST_FN uint pack_half_to_snorm2x16(half2 x) { return pack_float_to_snorm2x16(float2(x)); }
OST_FN uint pack_half_to_unorm10a2(half4 x) { return pack_float_to_unorm10a2(float4(x)); }
OST_FN ushort pack_half_to_unorm565(half3 x) { return pack_float_to_unorm565(float3(x)); }

}  // namespace metal
