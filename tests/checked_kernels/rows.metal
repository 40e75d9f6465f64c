#include <metal_stdlib>
using namespace metal;

kernel void softmax(device const float *in, device float *out, constant uint &width,
                    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint s [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                    uint n [[threads_per_threadgroup]], uint row [[threadgroup_position_in_grid]]) {
  threadgroup float parts[8];
  device const float *x = in + row * width;
  float top = -MAXFLOAT;
  for (uint c = t; c < width; c += n) top = max(top, x[c]);
  top = simd_max(top);
  if (lane == 0) parts[s] = top;                                   //: put_top
  threadgroup_barrier(mem_flags::mem_threadgroup);                 //: orders put_top>get_top
  for (uint k = 0; k < simdgroups; ++k) top = max(top, parts[k]);  //: get_top
  threadgroup_barrier(mem_flags::mem_threadgroup);                 //: orders get_top>put_sum
  float sum = 0;
  for (uint c = t; c < width; c += n) sum += exp(x[c] - top);
  sum = simd_sum(sum);
  if (lane == 0) parts[s] = sum;                    //: put_sum
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put_sum>get_sum
  float total = 0;
  for (uint k = 0; k < simdgroups; ++k) total += parts[k];  //: get_sum
  for (uint c = t; c < width; c += n) out[row * width + c] = exp(x[c] - top) / total;
}

kernel void layer_norm(device const float *in, device float *out, constant uint &width,
                       uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]],
                       uint row [[threadgroup_position_in_grid]]) {
  threadgroup float sums[256];
  device const float *x = in + row * width;
  float sum = 0;
  for (uint c = t; c < width; c += n) sum += x[c];
  sums[t] = sum;  //: put
  for (uint size = n; size > 1; size = (size + 1) / 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>fold, fold>fold
    uint rest = (size + 1) / 2;
    if (t + rest < size) sums[t] += sums[t + rest];  //: fold
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders fold>mean
  float mean = sums[0] / float(width);              //: mean
  threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders mean>put_square
  float squares = 0;
  for (uint c = t; c < width; c += n) squares += (x[c] - mean) * (x[c] - mean);
  sums[t] = squares;  //: put_square
  for (uint size = n; size > 1; size = (size + 1) / 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put_square>fold_square, fold_square>fold_square
    uint rest = (size + 1) / 2;
    if (t + rest < size) sums[t] += sums[t + rest];  //: fold_square
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);      //: orders fold_square>scale
  float scale = rsqrt(sums[0] / float(width) + 1e-5f);  //: scale
  for (uint c = t; c < width; c += n) out[row * width + c] = (x[c] - mean) * scale;
}

// A group goes on to the next row with two barriers a row: each orders this row and the next.
kernel void rms_norm(device const float *in, device float *out, constant uint &width, constant uint &rows,
                     uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint s [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]],
                     uint groups [[threadgroups_per_grid]]) {
  threadgroup float parts[8];
  threadgroup float scale;
  for (uint row = g; row < rows; row += groups) {
    device const float *x = in + row * width;
    float sum = 0;
    for (uint c = t; c < width; c += n) sum += x[c] * x[c];
    sum = simd_sum(sum);
    if (lane == 0) parts[s] = sum;                    //: put
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders put>gather, apply>set
    if (t == 0) {
      float total = 0;
      for (uint k = 0; k < simdgroups; ++k) total += parts[k];  //: gather
      scale = rsqrt(total / float(width) + 1e-5f);              //: set
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);                          //: orders set>apply, gather>put
    for (uint c = t; c < width; c += n) out[row * width + c] = x[c] * scale;  //: apply
  }
}

// A query a thread; keys and values pass through threadgroup memory in tiles of 16.
kernel void attention(device const float *queries, device const float *keys, device const float *values,
                      device float *out, constant uint &length, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  constexpr uint depth = 8;
  threadgroup float key_tile[16][depth];
  threadgroup float value_tile[16][depth];
  float query[depth];
  float result[depth];
  for (uint d = 0; d < depth; ++d) {
    query[d] = queries[i * depth + d];
    result[d] = 0;
  }
  float top = -MAXFLOAT;
  float sum = 0;
  for (uint first = 0; first < length; first += 16) {
    for (uint e = t; e < min(16u, length - first) * depth; e += n) {
      key_tile[e / depth][e % depth] = keys[first * depth + e];      //: load_keys
      value_tile[e / depth][e % depth] = values[first * depth + e];  //: load_values
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders load_keys>score, load_values>mix
    for (uint k = 0; k < min(16u, length - first); ++k) {
      float score = 0;
      for (uint d = 0; d < depth; ++d) score += query[d] * key_tile[k][d];  //: score
      float higher = max(top, score);
      float correction = exp(top - higher);
      float weight = exp(score - higher);
      sum = sum * correction + weight;
      for (uint d = 0; d < depth; ++d) result[d] = result[d] * correction + weight * value_tile[k][d];  //: mix
      top = higher;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  //: orders score>load_keys, mix>load_values
  }
  for (uint d = 0; d < depth; ++d) out[i * depth + d] = result[d] / sum;
}
