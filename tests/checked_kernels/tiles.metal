#include <metal_stdlib>
using namespace metal;

kernel void transpose(device const float *in, device float *out, uint2 i [[thread_position_in_grid]],
                      uint2 p [[thread_position_in_threadgroup]], uint2 n [[threads_per_threadgroup]],
                      uint t [[thread_index_in_threadgroup]], uint2 size [[threads_per_grid]]) {
  threadgroup float tile[16][17];
  tile[p.y][p.x] = in[i.y * size.x + i.x];          //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>take
  uint row = t / n.y;
  uint column = t % n.y;
  uint2 corner = i - p;
  out[(corner.x + row) * size.y + corner.y + column] = tile[column][row];  //: take
}

struct Sizes {
  uint m;
  uint n;
  uint k;
};

kernel void matmul_tiles(device const float *a, device const float *b, device float *c, constant Sizes &size,
                         uint2 i [[thread_position_in_grid]], uint2 p [[thread_position_in_threadgroup]],
                         uint2 threads [[threads_per_threadgroup]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float left[16][16];
  threadgroup float right[16][16];
  uint2 corner = i - p;
  uint n = threads.x * threads.y;
  float sum = 0;
  for (uint first = 0; first < size.k; first += 16) {
    for (uint e = t; e < 256; e += n) {
      uint row = e / 16;
      uint column = e % 16;
      bool in_a = corner.y + row < size.m && first + column < size.k;
      bool in_b = first + row < size.k && corner.x + column < size.n;
      left[row][column] = in_a ? a[(corner.y + row) * size.k + first + column] : 0;   //: load_left
      right[row][column] = in_b ? b[(first + row) * size.n + corner.x + column] : 0;  //: load_right
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders load_left>multiply, load_right>multiply
    for (uint k = 0; k < 16; ++k) sum += left[p.y][k] * right[k][p.x];  //: multiply
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders multiply>load_left, multiply>load_right
  }
  c[i.y * size.n + i.x] = sum;  //: store
}

// Each simdgroup has eight rows of the result, eight columns wide.
kernel void matmul_simdgroups(device const float *a, device const float *b, device float *c, constant Sizes &size,
                              uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                              uint s [[simdgroup_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                              uint simdgroups [[simdgroups_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float left[64][8];
  threadgroup float right[8][8];
  threadgroup float result[64][8];
  uint rows = 8 * simdgroups;
  simdgroup_float8x8 sum = simdgroup_float8x8(0);
  for (uint first = 0; first < size.k; first += 8) {
    for (uint e = t; e < rows * 8; e += n) {
      uint row = g * rows + e / 8;
      uint column = first + e % 8;
      left[e / 8][e % 8] = row < size.m && column < size.k ? a[row * size.k + column] : 0;  //: load_left
    }
    for (uint e = t; e < 64; e += n) {
      uint row = first + e / 8;
      right[e / 8][e % 8] = row < size.k && e % 8 < size.n ? b[row * size.n + e % 8] : 0;  //: load_right
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders load_left>fetch_left, load_right>fetch_right
    simdgroup_float8x8 x;
    simdgroup_float8x8 y;
    simdgroup_load(x, &left[s * 8][0], 8);  //: fetch_left
    simdgroup_load(y, &right[0][0], 8);     //: fetch_right
    simdgroup_multiply_accumulate(sum, x, y, sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders fetch_left>load_left, fetch_right>load_right
  }
  simdgroup_store(sum, &result[s * 8][0], 8);     //: store
  simdgroup_barrier(mem_flags::mem_threadgroup);  //: lockstep orders store>take
  for (uint e = lane; e < 64; e += 32) {
    uint row = g * rows + s * 8 + e / 8;
    if (row < size.m && e % 8 < size.n) c[row * size.n + e % 8] = result[s * 8 + e / 8][e % 8];  //: take
  }
}

kernel void convolve(device const float *in, device float *out, constant float *weights,
                     uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint count [[threads_per_grid]]) {
  threadgroup float tile[256 + 6];
  tile[t + 3] = in[i];                                          //: body
  if (t < 3) tile[t] = i >= 3 ? in[i - 3] : 0;                  //: low
  if (t + 3 >= n) tile[t + 6] = i + 3 < count ? in[i + 3] : 0;  //: high
  threadgroup_barrier(mem_flags::mem_threadgroup);              //: orders body>sum, low>sum, high>sum
  float sum = 0;
  for (uint k = 0; k < 7; ++k) sum += tile[t + k] * weights[k];  //: sum
  out[i] = sum;
}

// Each group smooths its own stretch several times in place.
kernel void smooth(device const float *in, device float *out, constant uint &steps, uint i [[thread_position_in_grid]],
                   uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup float cells[256 + 2];
  cells[t + 1] = in[i];  //: put
  if (t == 0) cells[0] = 0;
  if (t == n - 1) cells[n + 1] = 0;
  for (uint step = 0; step < steps; ++step) {
    threadgroup_barrier(mem_flags::mem_threadgroup);                             //: orders put>look, set>look
    float next = 0.25f * cells[t] + 0.5f * cells[t + 1] + 0.25f * cells[t + 2];  //: look
    threadgroup_barrier(mem_flags::mem_threadgroup);                             //: orders look>set
    cells[t + 1] = next;                                                         //: set
  }
  out[i] = cells[t + 1];  //: take
}

// Double buffering: the next tile is loaded while this one is used.
kernel void pipeline(device const float *in, device float *out, constant uint &parts,
                     uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint all [[threads_per_grid]]) {
  threadgroup float tiles[2][256];
  float sum = 0;
  tiles[0][t] = in[i];  //: begin
  for (uint part = 0; part < parts; ++part) {
    threadgroup_barrier(mem_flags::mem_threadgroup);                            //: orders begin>use, load>use
    if (part + 1 < parts) tiles[(part + 1) % 2][t] = in[(part + 1) * all + i];  //: load
    sum = 2 * sum + tiles[part % 2][n - 1 - t];                                 //: use
  }
  out[i] = sum;
}

// Its tile is a threadgroup argument, and its elements are vectors.
kernel void n_body(device const float4 *bodies, device float4 *out, constant uint &count,
                   threadgroup float4 *tile [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                   uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  float4 mine = bodies[i];
  float3 pull = float3(0);
  for (uint first = 0; first < count; first += n) {
    if (first + t < count) tile[t] = bodies[first + t];  //: load
    threadgroup_barrier(mem_flags::mem_threadgroup);     //: orders load>attract
    for (uint k = 0; k < min(n, count - first); ++k) {
      float4 other = tile[k];  //: attract
      float3 away = other.xyz - mine.xyz;
      pull += other.w * away / (dot(away, away) + 1.0f);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders attract>load
  }
  out[i] = float4(pull, 0);
}

// Neighbours write single bytes of one word, and others read whole words.
kernel void pack_bytes(device const uchar *in, device uint *out, uint i [[thread_position_in_grid]],
                       uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint words[64];
  threadgroup uchar *bytes = (threadgroup uchar *)words;
  bytes[t] = in[i];                                            //: put
  threadgroup_barrier(mem_flags::mem_threadgroup);             //: orders put>take
  if (t < n / 4) out[(i - t) / 4 + t] = words[n / 4 - 1 - t];  //: take
}
