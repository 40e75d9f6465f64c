// Products of matrices in device memory by warpgroups of Hopper (wgmma), for scopes of a multiple of four simdgroups.
//
// A pipeline over the sum: 64 columns of both operands at a time are copied to threadgroup memory without passing through
// registers (cp.async), several of these stages ahead, while the tensor cores multiply. A stage is reused two steps after
// its product was started: by then every warp has waited for it, so one barrier a step is enough. Rows lie in 128 bytes
// each, their sixteen-byte parts swapped by the row's number (the hardware's 128-byte swizzle).
//
// What a thread holds of the product is what cooperative_tensor.h says, four neighbours of a row, where the hardware would
// give it two and two. So the right operand's rows are stored in another order within each 16.
//
// The stages lie at the end of the block's threadgroup memory. The backend finds their size by the name of
// `staging_bytes` in the machine code, and makes room for them.
#pragma once

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace __ost {

template <uint32_t Bytes> __device__ uint32_t staging_bytes = Bytes;

OST_FN uint32_t shared_address(const void *at) { return uint32_t(::__cvta_generic_to_shared(at)); }
OST_FN void copy_async(uint32_t to, const void *from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
OST_FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> OST_FN void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them 1,024 bytes apart from the next eight.
OST_FN uint64_t rows_descriptor(uint32_t address) {
  return uint64_t((address & 0x3ffffu) >> 4) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

// 64 rows by N columns, 16 products each. The hardware's registers are those of the fragments (cooperative_tensor.h), with
// the second and the third pair of each eight exchanged.
template <class T, int N> struct wgmma;
#define OST_D8(i)                                                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define OST_D32(i) OST_D8(i), OST_D8(i + 8), OST_D8(i + 16), OST_D8(i + 24)
#define OST_D64(i) OST_D32(i), OST_D32(i + 32)
#define OST_D128(i) OST_D64(i), OST_D64(i + 64)
#define OST_WGMMA(type, name, n, registers, a, b, ...)                                                               \
  template <> struct wgmma<type, n> {                                                                                \
    static OST_FN void multiply(float *d, uint64_t left, uint64_t right) {                                            \
      asm volatile("{ .reg .pred adds; setp.eq.u32 adds, 0, 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name  \
                   "." name " {" registers "}, %" #a ", %" #b ", adds, 1, 1, 0, 0; }"                                \
                   : __VA_ARGS__                                                                                     \
                   : "l"(left), "l"(right)                                                                           \
                   : "memory");                                                                                      \
    }                                                                                                                \
  };
#define OST_WGMMA_SIZES(type, name)                                                             \
  OST_WGMMA(type, name, 32, OST_R16, 16, 17, OST_D8(0), OST_D8(8))                              \
  OST_WGMMA(type, name, 64, OST_R32, 32, 33, OST_D32(0))                                        \
  OST_WGMMA(type, name, 128, OST_R64, 64, 65, OST_D64(0))                                       \
  OST_WGMMA(type, name, 256, OST_R128, 128, 129, OST_D128(0))
// clang-format off
#define OST_R16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OST_R32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OST_R64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OST_R128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on
OST_WGMMA_SIZES(half, "f16")
OST_WGMMA_SIZES(bfloat, "bf16")
#undef OST_R16
#undef OST_R32
#undef OST_R64
#undef OST_R128
#undef OST_WGMMA_SIZES
#undef OST_WGMMA
#undef OST_D128
#undef OST_D64
#undef OST_D32
#undef OST_D8

// One operand's part of every stage: Rows rows, copied by all threads of the block, eight to a row, from one tile along
// the sum to the next.
template <class T, int Rows, int Threads, bool Reordered> struct staged_operand {
  static constexpr int step = Threads / 8, copies = Rows / step;
  const T *from[copies];  // in each of this thread's rows; any place where there is no such row
  ptrdiff_t inner_stride;
  int left;           // along the sum
  uint32_t rows, at;  // a bit for each row that there is; the place of the first in a stage

  OST_FN staged_operand(const operand_view<const T> &view, int depth) {
    const int own = int(threadIdx.x) / 8, part = int(threadIdx.x) % 8;
    inner_stride = view.inner_stride;
    left = depth - part * 8;
    rows = 0;
#pragma unroll
    for (int i = 0; i < copies; i++) {
      const bool inside = own + i * step < view.outer_size;
      from[i] = view.data + (inside ? (own + i * step) * view.outer_stride + part * 8 * view.inner_stride : 0);
      rows |= uint32_t(inside) << i;
    }
    const int place = Reordered ? (own & ~15) | (own & 2) << 2 | (own & 12) >> 1 | (own & 1) : own;
    at = uint32_t(place * 128 + ((part ^ (place & 7)) * 16));
  }
  // Whether sixteen bytes can be copied at once.
  static OST_FN bool is_whole(const operand_view<const T> &view) {
    return view.inner_stride == 1 && !::__isShared(view.data) &&
           ((uint64_t(view.data) | uint64_t(view.outer_stride * 2)) & 15) == 0;
  }
  template <bool Whole> OST_FN void copy(uint32_t stage) {
    const int bytes = left <= 0 ? 0 : left >= 8 ? 16 : left * 2;
#pragma unroll
    for (int i = 0; i < copies; i++) {
      const uint32_t to = stage + at + uint32_t(i * step * 128);
      const int inside = bytes & -int(rows >> i & 1u);
      if constexpr (Whole) {
        copy_async(to, from[i], inside);
      } else {
        uint16_t part[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
          part[j] = 2 * j < inside ? bits_as<uint16_t>(from[i][j * inner_stride]) : uint16_t(0);
        ::uint4 words;
        ::memcpy(&words, part, 16);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y), "r"(words.z),
                     "r"(words.w)
                     : "memory");
      }
      from[i] += 64 * inner_stride;
    }
    left -= 64;
  }
};

// Layout: the product's (cooperative_tensor.h), in scopes whose simdgroups are arranged by fours.
template <class Layout, class T> struct staged_product {
  static constexpr int threads = Layout::scope::threads, rows = Layout::down * 16, columns = Layout::across * 16;
  static constexpr int left_bytes = rows * 128, stage = left_bytes + columns * 128;
  static constexpr int stages = smaller_of(8, 196608 / stage), bytes = stages * stage + 1024;
  static constexpr int held = Layout::columns_held * 16;
  static constexpr int chunk = held % 256 == 0 ? 256 : held % 128 == 0 ? 128 : held % 64 == 0 ? 64 : 32;
  static constexpr bool possible = Layout::by_fours && mma_element<T>::native && sizeof(T) == 2 && held % 32 == 0 &&
                                   stages >= 4 && rows % (threads / 8) == 0 && columns % (threads / 8) == 0;
  typedef staged_operand<T, rows, threads, false> Left;
  typedef staged_operand<T, columns, threads, true> Right;

  // Adds to `sums`, which are those of a thread in the order of its fragments.
  static OST_FN void add(const operand_view<const T> &l, const operand_view<const T> &r, int depth, float *sums) {
    asm volatile("{ .reg .u64 unused; mov.u64 unused, %0; }" ::"l"(&staging_bytes<uint32_t(bytes)>));
    if (Left::is_whole(l) && Right::is_whole(r)) add_in_stages<true>(l, r, depth, sums);
    else add_in_stages<false>(l, r, depth, sums);
  }

  template <bool Whole>
  static OST_FN void add_in_stages(const operand_view<const T> &l, const operand_view<const T> &r, int depth,
                                   float *sums) {
    uint32_t all;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(all));
    const uint32_t base = (shared_address(__ost_arena) + all - uint32_t(bytes) + 1023u) & ~1023u;
    Left left(l, depth);
    Right right(r, depth);
    const int steps = (depth + 63) / 64;
    const auto copy = [&](uint32_t slot) {
      left.template copy<Whole>(base + slot * stage);
      right.template copy<Whole>(base + slot * stage + left_bytes);
      commit_copies();
    };
    // Broadcast, so that the compiler knows that all threads of a warp have the same.
    const int group = ::__shfl_sync(0xffffffffu, int(threadIdx.x / 128), 0);
    const uint64_t own_left = rows_descriptor(base + uint32_t(Layout::first_row_block(group)) * (64 * 128));
    const uint64_t own_right =
        rows_descriptor(base + left_bytes + uint32_t(Layout::first_column_block(group)) * (16 * 128));
    ::__syncthreads();  // threadgroup memory may still be read by a product before
#pragma unroll 1
    for (int tile = 0; tile < stages - 2; tile++) copy(tile);
    uint32_t slot = 0, next = stages - 2;
#pragma unroll 1
    for (int tile = 0; tile < steps; tile++) {
      wait_for_copies<stages - 3>();
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      ::__syncthreads();
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int block = 0; block < Layout::rows_held; block++)
#pragma unroll
          for (int column = 0; column < held; column += chunk)
            wgmma<T, chunk>::multiply(sums + block * (held / 2) + column / 2,
                                      own_left + (slot * stage + uint32_t(block * 64 * 128 + k * 32)) / 16,
                                      own_right + (slot * stage + uint32_t(column * 128 + k * 32)) / 16);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      copy(next);
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      slot = slot + 1 == stages ? 0 : slot + 1;
      next = next + 1 == stages ? 0 : next + 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    wait_for_copies<0>();
#pragma unroll
    for (int i = 0; i < Layout::capacity; i++) asm volatile("" : "+f"(sums[i])::"memory");
  }
};

}  // namespace __ost

#endif
