// What a device must hold while it trains under a plan (docs/memory.md).
#ifndef SOYBEAN_SEARCH_MEMORY_H_
#define SOYBEAN_SEARCH_MEMORY_H_

#include "search/kept.h"
#include "search/space.h"

namespace soybean {

// Bytes on one device.
struct Memory {
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  int64_t inputs = 0;       // what is fed, and moving statistics
  int64_t activations = 0;  // what operators make that is kept for the backward pass
  int64_t conversions = 0;  // copies of such tensors in other tilings
  int64_t workspace = 0;    // what the executor's memory has room for beside these two
  int64_t peak() const {
    return parameters + gradients + optimizer + inputs + activations + conversions + workspace;
  }
};

// Bytes of a device's tile of a tensor: 0 where it holds none.
int64_t tile_bytes_on(const Mesh& mesh, const TensorType& type, const Tiling& tiling, int device);

// The first device holds most, as parts differ by one element at most, longer ones first,
// and what one device holds alone is there.
constexpr int kFullestDevice = 0;

Memory device_memory(const Space& space, const Plan& plan, const KeptTensors& kept, int optimizer_states,
                     int device);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_MEMORY_H_
