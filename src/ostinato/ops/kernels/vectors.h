// A row in vectors of type V, of whose size its address is a multiple. The compiler relies on that with a value of this
// type, but not where it sees a cast.
#pragma once

template <typename V, typename T> inline device const V *in_vectors(device const T *row) {
    return (device const V *)row;
}
