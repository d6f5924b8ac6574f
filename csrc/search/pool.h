// The memory that MXNet's executor plans for what one device computes in a step.
#ifndef SOYBEAN_SEARCH_POOL_H_
#define SOYBEAN_SEARCH_POOL_H_

#include "search/kept.h"
#include "search/space.h"

namespace soybean {

// Bytes of all blocks together on a device. Found as MXNet 1.9.1
// finds them: the operators in the order in which they run, forward and backward, each
// taking the block that suits best of those that are free, 16 times too large at most.
// More than is needed at any one time, as blocks do not join and are not moved.
int64_t pooled_bytes(const Space& space, const Plan& plan, const KeptTensors& kept, int device);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_POOL_H_
