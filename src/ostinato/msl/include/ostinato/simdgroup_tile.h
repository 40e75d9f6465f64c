// How an 8 x 8 matrix is spread over the 32 lanes of a simdgroup: two neighbours of a row in each lane, in the layout of
// Apple GPUs (template code relies on it).
#pragma once

namespace __ost {

OST_FN constexpr uint32_t tile_row(uint32_t lane) { return ((lane >> 2) & 4u) + ((lane >> 1) & 3u); }
OST_FN constexpr uint32_t tile_column(uint32_t lane) { return ((lane >> 2) & 2u) * 2u + (lane & 1u) * 2u; }

struct tile_in { float a[2], b[2], c[2], unused[2]; };
struct tile_out { float d[2]; };

}  // namespace __ost
