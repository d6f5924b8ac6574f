// Minimisation of a sum of cost tables by eliminating variables.
//
// The problem: variables x_1..x_n, each with a finite domain, and tables, each
// a cost for every combination of the values of a few variables. Wanted: values
// that minimise the sum of all tables.
//
// Eliminating x replaces the tables that mention x (its bucket) by one table over
// their other variables, holding for each combination the least sum over x: a
// dynamic programme over a tree decomposition. The order decides the size of the
// tables, not the result: by least table, or by least fill, whichever makes the
// smaller tables.
//
// Where a bucket's table would exceed the limit, its tables are divided into
// groups that stay below, and x is eliminated from each group on its own, as if
// each had a copy of x (mini-buckets, Dechter and Rish 2003). The sum is then a
// lower bound; values are read off backwards from the groups, and their cost is an
// upper bound.
#ifndef SOYBEAN_SEARCH_ELIMINATION_H_
#define SOYBEAN_SEARCH_ELIMINATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace soybean {

// Costs of every combination of the values of `variables`, each named once; the
// last varies fastest. Equal tables may share their costs.
struct CostTable {
  std::vector<int> variables;
  std::shared_ptr<const std::vector<int64_t>> costs;
};

// Stands for what cannot be; sums of hundreds of it do not overflow.
constexpr int64_t kForbidden = int64_t{1} << 55;

struct Solution {
  std::vector<int> values;  // by variable
  int64_t cost = 0;         // of the values; kForbidden or more when there are none
  int64_t lower_bound = 0;  // no values cost less; equal to `cost` where exact
  int width = 0;            // the most variables that a table mentions
};

// `domains`: the number of values of each variable, at least 1.
// `limit`: the entries of the largest table that may be built.
Solution minimise(const std::vector<int>& domains, const std::vector<CostTable>& tables,
                  size_t limit);

// For each variable and value, the least cost of all assignments with that value.
// Empty when a table would exceed the limit.
std::vector<std::vector<int64_t>> min_marginals(const std::vector<int>& domains,
                                                const std::vector<CostTable>& tables,
                                                size_t limit);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_ELIMINATION_H_
