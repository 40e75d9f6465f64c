// Copies and fills as ordinary kernels, so that they run concurrently with others, in graphs, and can be timed.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void copy_elements(device const T *source [[buffer(0)]], device T *target [[buffer(1)]],
                          constant ulong &count [[buffer(2)]], uint id [[thread_position_in_grid]],
                          uint size [[threads_per_grid]]) {
  for (ulong i = id; i < count; i += size) target[i] = source[i];
}
template [[host_name("copy_16")]] kernel void copy_elements<uint4>(device const uint4 *, device uint4 *,
                                                                   constant ulong &, uint, uint);
template [[host_name("copy_4")]] kernel void copy_elements<uint>(device const uint *, device uint *, constant ulong &,
                                                                 uint, uint);
template [[host_name("copy_1")]] kernel void copy_elements<uchar>(device const uchar *, device uchar *,
                                                                  constant ulong &, uint, uint);

template <typename T>
kernel void fill_elements(device T *target [[buffer(0)]], constant T &pattern [[buffer(1)]],
                          constant ulong &count [[buffer(2)]], uint id [[thread_position_in_grid]],
                          uint size [[threads_per_grid]]) {
  for (ulong i = id; i < count; i += size) target[i] = pattern;
}
template [[host_name("fill_16")]] kernel void fill_elements<uint4>(device uint4 *, constant uint4 &, constant ulong &,
                                                                   uint, uint);
template [[host_name("fill_8")]] kernel void fill_elements<ulong>(device ulong *, constant ulong &, constant ulong &,
                                                                  uint, uint);
template [[host_name("fill_4")]] kernel void fill_elements<uint>(device uint *, constant uint &, constant ulong &, uint,
                                                                 uint);
template [[host_name("fill_2")]] kernel void fill_elements<ushort>(device ushort *, constant ushort &, constant ulong &,
                                                                   uint, uint);
template [[host_name("fill_1")]] kernel void fill_elements<uchar>(device uchar *, constant uchar &, constant ulong &,
                                                                  uint, uint);

// Where the target is not aligned to its pattern.
kernel void fill_bytes(device uchar *target [[buffer(0)]], constant ulong &pattern [[buffer(1)]],
                       constant ulong &count [[buffer(2)]], constant uint &width [[buffer(3)]],
                       uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
  for (ulong i = id; i < count; i += size) target[i] = uchar(pattern >> (8 * (i % width)));
}
