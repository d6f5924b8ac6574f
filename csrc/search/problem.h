// A search space as a problem for minimise(): what each variable of the problem
// stands for, and the cost tables between them.
//
// The variables are the operators (how each is cut), the tensors with several uses
// (how each rests between them) and the results (how each is left). The total of
// the tables is the cost of all conversions, forward and backward,
//
//   sum over uses u of tensors t:  C(made(t) -> rest(t)) + C(rest(t) -> need(u))
//
// where C doubles if t has a gradient, and of all operators. A tensor with one use
// rests as the use needs it, which is best as no conversion is dearer than one by
// way of a third tiling. A variable with one use rests in the best of its tilings: where
// the use needs it, with the cuts that would replicate a parameter spread over a dim.
#ifndef SOYBEAN_SEARCH_PROBLEM_H_
#define SOYBEAN_SEARCH_PROBLEM_H_

#include <functional>
#include <set>

#include "search/elimination.h"
#include "search/prices.h"

namespace soybean {

// The choices of a problem: all of a space's, some of them, or the arrangements of
// a few.
struct Domains {
  std::vector<std::vector<OperatorCuts>> operators;  // by node; empty for variables
  std::map<Entry, std::vector<Tiling>> tensors;      // those that rest between uses
  std::vector<std::vector<Tiling>> results;
};

// Narrows a domain to the choices that a strategy allows; it must leave one.
struct Filter {
  std::function<void(int node, std::vector<OperatorCuts>*)> operators;
  std::function<void(Entry e, std::vector<Tiling>*)> tensors;
  std::function<void(size_t result, std::vector<Tiling>*)> results;
};

Domains domains_of(const Space& space, const Filter& filter);

// Whether a tensor is a variable of the problem, resting between its uses: it has several,
// or a pin. One that is changed in place rests where its operator is, unless it has a pin.
bool rests(const Space& space, Entry e);

class Problem {
 public:
  Problem(const Space& space, const Domains& domains, const Pricing& pricing);

  // `limit`: the entries of the largest table.
  Solution solve(size_t limit) const;
  // The same with the cuts that are `allowed` only, for operators that have such.
  Solution solve(size_t limit, const std::function<bool(const OperatorCuts&)>& allowed) const;
  // Domains without the choices that no assignment of at most `cost` has (in the
  // objective's unit); no value where the marginals are too large to compute.
  bool prune(int64_t cost, size_t limit, Domains* domains) const;

  Plan plan_of(const Solution& solution);
  // Of an assignment, in the objective's unit (Cost::bytes).
  int64_t value_of(int64_t packed) const { return packed >> tie_bits_; }

  size_t variable_count() const { return sizes_.size(); }
  // Assigns each operator in this order, and then how its outputs rest, what is cheapest
  // with those before (Spartan's greedy); the rest is then chosen by elimination.
  Solution greedy(const std::vector<int>& nodes, size_t limit) const;
  const std::vector<int>& operator_variables() const { return operator_variable_; }

 private:
  // A place where a tensor is used, as a problem variable with, for each of its
  // values, the tilings in which it needs the tensor (one per input it feeds).
  struct Need {
    int variable;
    std::vector<std::vector<int>> tilings;  // by value, numbered
  };
  struct PricedTable {
    std::vector<int> variables;
    std::shared_ptr<const std::vector<Cost>> costs;
  };

  int add_variable(size_t domain);
  std::vector<int> made(Entry e);  // by value of the producer, numbered
  std::vector<Need> needs(Entry e);
  std::vector<int> needed_by(const Plan& plan, Entry e);
  void add_operators();
  void add_results();
  void add_tensor(Entry e);
  void add_unary(int variable, std::vector<Cost> costs);
  void add_fixed(Entry e, const std::vector<Need>& all);
  void add_conversions(Entry e, int from, const std::vector<int>& tilings, const Need& need);
  Cost conversion(Entry e, int from, int to);
  void pack();

  // Where a variable of the graph is best held for one use.
  struct Source {
    Cost cost;
    Tiling tiling;
  };
  struct Holder {
    int number = 0;
    std::vector<Tiling> tilings;
    std::set<Counts> counts;  // of these
    bool owned = false;       // whether the owner holds all or a part in one of them
  };
  int holder(Entry e);
  Source best_source(Entry e, const std::vector<int>& needed);
  Source best_of(Entry e, const std::vector<Tiling>& candidates, const std::vector<int>& needed);

  const Space& space_;
  const Domains& domains_;
  Prices prices_;
  std::vector<int> sizes_;  // of the problem's domains
  std::vector<PricedTable> priced_;
  std::vector<CostTable> tables_;
  int tie_bits_ = 0;
  std::vector<int> operator_variable_;  // by node, or -1
  std::vector<int> result_variable_;
  std::map<Entry, int> tensor_variable_;
  std::map<std::vector<int>, std::shared_ptr<const std::vector<Cost>>> shared_;
  std::map<Entry, int> holder_of_;
  std::map<std::vector<int>, Holder> holders_;
  std::vector<const Holder*> holders_by_number_;
  std::map<std::pair<int, std::vector<int>>, Source> sources_;
};

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_PROBLEM_H_
