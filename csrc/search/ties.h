// Which factors of a program's operators run along the same thing: the samples, the
// channels of a block of layers, the height of an image.
//
// Two factors are tied when they run along the same dim of a tensor. Ties are what a
// choice spreads along: cutting one factor makes its tied ones cheap to cut.
#ifndef SOYBEAN_SEARCH_TIES_H_
#define SOYBEAN_SEARCH_TIES_H_

#include <map>
#include <vector>

#include "rules/rule.h"

namespace soybean {

class Ties {
 public:
  Ties(const Graph& graph, const std::vector<Rule>& rules);

  // Factors with equal numbers are tied.
  size_t of(size_t node, size_t factor) const { return group_[first_[node] + factor]; }
  size_t count() const { return first_.back(); }

 private:
  std::vector<size_t> first_;  // by node, into group_
  std::vector<size_t> group_;
};

// Takes the mark of the sample dim off the factors that run along a parameter's dim:
// the first dim of a vector of channels is no sample.
void mark_samples(const Graph& graph, std::vector<Rule>* rules);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_TIES_H_
