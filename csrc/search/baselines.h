// What people do by hand, as filters on the search space: the best plan among those
// that follow a rule.
//
//   data      every operator cut along the batch as far as that goes; parameters are
//             spread over the devices and gathered for use
//   zero      the same with every parameter cut along its first dim (ZeRO's stage 3)
//   model     no operator cut along the batch unless nothing else can be
//   owt       "one weird trick" (Krizhevsky 2014): operators with image kernels cut
//             along the batch, those with matrices not
//   megatron  operators with weights in pairs, the first cut along its outputs, the
//             second along its inputs (Megatron-LM's column and row parallel layers)
#ifndef SOYBEAN_SEARCH_BASELINES_H_
#define SOYBEAN_SEARCH_BASELINES_H_

#include <optional>
#include <string>

#include "search/problem.h"

namespace soybean {

// No value for a name that is no baseline. The filter refers to the program.
std::optional<Filter> baseline(const Program& program, const std::string& name);

// The operators in the order in which Spartan decides them (Huang et al. 2015): those
// with the largest tensors first.
std::vector<int> by_size(const Program& program);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_BASELINES_H_
