// Exact minimisation of a sum of cost tables, by eliminating variables.
//
// The problem: variables x_1..x_n, each with a finite domain, and tables, each
// a cost for every combination of the values of a few variables. Wanted: values
// that minimise the sum of all tables.
//
// Eliminating x replaces the tables that mention x by one table over their
// other variables, holding for each combination the least sum over x. The order
// picks the variable whose new table is smallest (greedy; on a chain or a tree
// the tables stay pairwise). The result is exact for every order; the order
// decides the size of the tables only.
#ifndef SOYBEAN_SEARCH_ELIMINATION_H_
#define SOYBEAN_SEARCH_ELIMINATION_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "tiling/conversion.h"

namespace soybean {

// Costs of every combination of the values of `variables`; the last variable
// varies fastest.
struct CostTable {
  std::vector<int> variables;  // ascending
  std::vector<Cost> costs;
};

struct Assignment {
  std::vector<int> values;  // by variable
  Cost cost;
};

// `domains`: the number of values of each variable, at least 1. No value when
// some table would hold more than `limit` entries, or when every assignment is
// impossible.
std::optional<Assignment> minimise(const std::vector<int>& domains, std::vector<CostTable> tables,
                                   size_t limit);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_ELIMINATION_H_
