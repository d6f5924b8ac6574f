// Small parameters that are converted alike, to be brought to the devices together.
//
// Of a bias a few hundred elements cross at a time, which costs a message and several
// operators each. Those that rest alike and are needed alike travel as one tensor of two
// dims: `rows` of it, one for each of the ranges into which tilings divide the parameters, and
// in each row every parameter's elements of that range side by side. Split on dim 0, it is
// tiled as its members are. No more bytes move.
#ifndef SOYBEAN_LOWER_BUCKETS_H_
#define SOYBEAN_LOWER_BUCKETS_H_

#include <vector>

#include "search/plan.h"

namespace soybean {

struct Bucket {
  std::vector<int> variables;  // nodes of the serial graph, in the order of their uses
  Tiling from, to;
  int64_t rows = 1;
  TensorType type;  // of the bucket
};

// Each variable is in one bucket at most; every bucket has two or more. Only parameters with a
// single use are taken: up to kBucketMembers next to each other in the graph, of up to
// kBucketElements each, which the tilings divide evenly.
constexpr size_t kBucketMembers = 16;
constexpr int64_t kBucketElements = 1 << 14;
std::vector<Bucket> find_buckets(const Program& program, const Plan& plan);

}  // namespace soybean

#endif  // SOYBEAN_LOWER_BUCKETS_H_
