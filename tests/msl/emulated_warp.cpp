// The simdgroup functions of the CUDA target, run by a warp of 32 host threads: CUDA's intrinsics are replaced by
// meetings of the threads that are named in their masks. Prints what differs from the plain definition of each function,
// and ends with the number of comparisons and of differences. A shuffle from a lane outside its mask ends the program.
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#define __CUDA_ARCH__ 700
#define OST_FN inline __attribute__((always_inline))
#define OST_ROOT

struct Index { uint32_t x; };
static thread_local Index threadIdx;
static uint32_t active;

static std::mutex guard;
static std::condition_variable wake;
static uint64_t rounds;
static uint32_t arrived, slots[2][32];

// Every lane of the mask brings a word and sees those of all.
static void meet(uint32_t mask, uint32_t word, uint32_t (&all)[32]) {
  std::unique_lock<std::mutex> lock(guard);
  const uint64_t round = rounds;
  slots[round & 1][threadIdx.x] = word;
  if (++arrived == uint32_t(__builtin_popcount(mask))) {
    arrived = 0;
    rounds++;
    wake.notify_all();
  } else {
    wake.wait(lock, [&] { return rounds != round; });
  }
  std::memcpy(all, slots[round & 1], sizeof all);
}

static uint32_t __shfl_sync(uint32_t mask, uint32_t word, int from) {
  uint32_t all[32];
  meet(mask, word, all);
  if (!((mask >> (from & 31)) & 1u)) {
    std::printf("lane %u reads from lane %d, which is not in %08x\n", threadIdx.x, from, mask);
    std::exit(1);
  }
  return all[from & 31];
}
static uint32_t __shfl_xor_sync(uint32_t mask, uint32_t word, int bits) {
  return __shfl_sync(mask, word, int(threadIdx.x) ^ bits);
}
static uint32_t __shfl_up_sync(uint32_t mask, uint32_t word, uint32_t by) {
  return __shfl_sync(mask, word, int(threadIdx.x >= by ? threadIdx.x - by : threadIdx.x));
}
static uint32_t __ballot_sync(uint32_t mask, int vote) {
  uint32_t all[32], votes = 0;
  meet(mask & active, vote != 0, all);
  for (uint32_t i = 0; i < 32; i++) votes |= ((mask & active) >> i & all[i] & 1u) << i;
  return votes;
}
static uint32_t __activemask() { return active; }
static int __ffs(int bits) { return __builtin_ffs(bits); }
static void __syncthreads() {}
static void __syncwarp(uint32_t) {}
static void __threadfence() {}
static void __threadfence_block() {}
// Rows are fetched from threadgroup memory for tensor cores alone.
static bool __isShared(const void *) { return false; }
static size_t __cvta_generic_to_shared(const void *) { std::abort(); }

typedef _Float16 half;
#include "ostinato/types.h"
#include "ostinato/traits.h"
#include "ostinato/limits.h"
#include "ostinato/vector.h"
#include "ostinato/arguments.h"
#include "ostinato/scalar_math.h"
#include "ostinato/scalar_math_cpu.h"
#include "ostinato/math.h"
#include "ostinato/atomic_types.h"
#include "ostinato/exec_cuda.h"
#include "ostinato/simd_operations.h"
#include "ostinato/simd_cuda.h"
#include "ostinato/simd.h"

// Of utility.h only this: the rest prints.
template <class To, class From> OST_FN To as_type(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
#include "ostinato/mma_cuda.h"
#include "ostinato/simdgroup_tile.h"
#include "ostinato/simdgroup_matrix_cuda.h"
#include "ostinato/simdgroup_matrix.h"

using namespace metal;
using __ost::Site;

template <class Body> static void run_lanes(uint32_t mask, Body body) {
  active = mask;
  std::vector<std::thread> warp;
  for (uint32_t lane = 0; lane < 32; lane++)
    if (mask >> lane & 1u)
      warp.emplace_back([=] {
        threadIdx.x = lane;
        body(lane, Site{mask});
      });
  for (std::thread &one : warp) one.join();
}

static int compared, different;
static void compare(const char *what, const char *type, uint32_t mask, int lane, double got, double wanted) {
  compared++;
  if (got == wanted) return;
  different++;
  std::printf("%s(%s) of %08x in lane %d is %g, not %g\n", what, type, mask, lane, got, wanted);
}

template <class T> static T value_in(int lane) { return T(lane * 7 % 11 + 1); }

static const char *const names[] = {"simd_sum",
                                    "simd_min",
                                    "simd_max",
                                    "quad_sum",
                                    "quad_product",
                                    "simd_prefix_inclusive_sum",
                                    "simd_prefix_exclusive_sum",
                                    "quad_prefix_exclusive_sum",
                                    "simd_shuffle",
                                    "simd_shuffle_up",
                                    "simd_shuffle_down",
                                    "simd_shuffle_xor",
                                    "simd_shuffle_rotate_up",
                                    "simd_shuffle_and_fill_up",
                                    "simd_broadcast_first",
                                    "quad_broadcast_first"};
constexpr int functions = sizeof names / sizeof *names;

template <class T> static void check_functions(const char *type, uint32_t mask) {
  static T got[functions][32];
  run_lanes(mask, [](uint32_t lane, Site s) {
    const T x = value_in<T>(int(lane));
    const T all[functions] = {simd_sum(s, x),
                              simd_min(s, x),
                              simd_max(s, x),
                              quad_sum(s, x),
                              quad_product(s, T(lane % 2 + 1)),
                              simd_prefix_inclusive_sum(s, x),
                              simd_prefix_exclusive_sum(s, x),
                              quad_prefix_exclusive_sum(s, x),
                              simd_shuffle(s, x, ushort(lane * 5 % 32)),
                              simd_shuffle_up(s, x, 3),
                              simd_shuffle_down(s, x, 3),
                              simd_shuffle_xor(s, x, 9),
                              simd_shuffle_rotate_up(s, x, 5),
                              simd_shuffle_and_fill_up(s, x, T(x + T(50)), 3),
                              simd_broadcast_first(s, x),
                              quad_broadcast_first(s, x)};
    for (int f = 0; f < functions; f++) got[f][lane] = all[f];
  });
  const auto present = [mask](int lane) { return lane >= 0 && lane < 32 && (mask >> lane & 1u); };
  for (int lane = 0; lane < 32; lane++) {
    if (!present(lane)) continue;
    double sum = 0, least = 1e9, most = 0, quad = 0, product = 1, up_to = 0, below = 0, quad_below = 0;
    int first = -1, quad_first = -1;
    for (int i = 31; i >= 0; i--) {
      if (!present(i)) continue;
      const double v = double(value_in<T>(i));
      sum += v, least = std::fmin(least, v), most = std::fmax(most, v), first = i;
      up_to += i <= lane ? v : 0, below += i < lane ? v : 0;
      if (i / 4 == lane / 4) quad += v, product *= i % 2 + 1, quad_below += i < lane ? v : 0, quad_first = i;
    }
    const auto from = [&](int other) { return double(value_in<T>(present(other) ? other : lane)); };
    const double wanted[functions] = {sum,
                                      least,
                                      most,
                                      quad,
                                      product,
                                      up_to,
                                      below,
                                      quad_below,
                                      from(lane * 5 % 32),
                                      from(lane - 3),
                                      from(lane + 3),
                                      from(lane ^ 9),
                                      from((lane - 5) & 31),
                                      from((lane + 29) % 32) + (lane < 3 ? 50 : 0),
                                      from(first),
                                      from(quad_first)};
    for (int f = 0; f < functions; f++) compare(names[f], type, mask, lane, double(got[f][lane]), double(T(wanted[f])));
  }
}

static void check_votes(uint32_t mask) {
  static uint32_t got[4][32];
  run_lanes(mask, [](uint32_t lane, Site s) {
    got[0][lane] = simd_all(s, lane < 32);
    got[1][lane] = simd_any(s, lane == 1);
    got[2][lane] = simd_is_first(s);
    got[3][lane] = uint32_t(uint64_t(simd_ballot(s, lane % 3 == 0)));
  });
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1u)) continue;
    compare("simd_all", "bool", mask, lane, got[0][lane], 1);
    compare("simd_any", "bool", mask, lane, got[1][lane], mask >> 1 & 1u);
    compare("simd_is_first", "bool", mask, lane, got[2][lane], lane == __builtin_ctz(mask));
    compare("simd_ballot", "bool", mask, lane, got[3][lane], mask & 0x49249249u);
  }
}

// Lanes that are absent count as zero.
template <class T> static void check_product(const char *type, uint32_t mask) {
  static T a[64], b[64];
  static float c[64], d[64];
  for (int i = 0; i < 64; i++) a[i] = T(float(i % 7 - 3)), b[i] = T(float(i % 5 - 1)), c[i] = float(i % 3);
  run_lanes(mask, [](uint32_t, Site s) {
    simdgroup_matrix<T, 8, 8> left, right;
    simdgroup_float8x8 sum;
    simdgroup_load(left, a), simdgroup_load(right, b), simdgroup_load(sum, c);
    simdgroup_multiply_accumulate(s, sum, left, right, sum);
    simdgroup_store(sum, d);
  });
  const auto there = [mask](int row, int column) {
    return mask >> __ost::tile_lane(uint32_t(row), uint32_t(column)) & 1u;
  };
  for (int row = 0; row < 8; row++)
    for (int column = 0; column < 8; column++) {
      if (!there(row, column)) continue;
      float wanted = c[row * 8 + column];
      for (int k = 0; k < 8; k++)
        if (there(row, k) && there(k, column)) wanted += float(a[row * 8 + k]) * float(b[k * 8 + column]);
      compare("multiply_accumulate", type, mask, int(__ost::tile_lane(uint32_t(row), uint32_t(column))),
              d[row * 8 + column], wanted);
    }
}

int main() {
  for (uint32_t lane = 0; lane < 32; lane++)
    for (uint32_t i = 0; i < 2; i++)
      compare("tile_lane", "uint", ~0u, int(lane),
              __ost::tile_lane(__ost::tile_row(lane), __ost::tile_column(lane) + i), lane);
  for (uint32_t mask : {0xffffffffu, 0x000fffffu, 0x00000001u, 0x00000007u, 0xa5a5f00fu, 0x80000001u, 0x55555555u}) {
    check_functions<float>("float", mask);
    check_functions<half>("half", mask);
    check_functions<int>("int", mask);
    check_functions<short>("short", mask);
    check_functions<ulong>("ulong", mask);
    check_votes(mask);
    check_product<float>("float", mask);
    check_product<half>("half", mask);
    check_product<bfloat>("bfloat", mask);
  }
  std::printf("%d compared, %d different\n", compared, different);
  return different != 0;
}
