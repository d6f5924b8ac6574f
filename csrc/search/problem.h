// A search space as a problem for minimise(): what each variable of the problem
// stands for, and the cost tables between them.
//
// The variables are the operators (how each is cut), the tensors with several
// uses (how each rests between them) and the results (how each is left). The
// total of the tables is the bytes of all conversions, forward and backward:
//
//   sum over uses u of tensors t:  C(made(t) -> rest(t)) + C(rest(t) -> need(u))
//
// where C doubles if t has a gradient. A tensor with one use rests as the use
// needs it, which is best because conversions are shortest paths.
#ifndef SOYBEAN_SEARCH_PROBLEM_H_
#define SOYBEAN_SEARCH_PROBLEM_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "search/elimination.h"
#include "search/space.h"

namespace soybean {

// The conversions of every tensor of a graph, shared between tensors alike.
class Conversions {
 public:
  explicit Conversions(const Space& space) : space_(space) {}
  // `more`: choices beyond those that the space gives the tensor.
  ConversionGraph& of(Entry e, const std::vector<Choice>& more = {});

 private:
  const Space& space_;
  std::map<std::pair<std::pair<Shape, int>, std::vector<Choice>>, std::unique_ptr<ConversionGraph>>
      graphs_;
};

class Problem {
 public:
  // Narrows a domain to the choices that a strategy allows; it must leave one.
  struct Filter {
    std::function<void(int node, std::vector<OperatorCuts>*)> operators;
    std::function<void(Entry e, std::vector<Tiling>*)> tensors;
    std::function<void(size_t result, std::vector<Tiling>*)> results;
  };

  Problem(const Space& space, const Filter& filter);

  // The best plan; no value when the tables would outgrow `table_limit`.
  std::optional<Plan> solve(size_t table_limit);

 private:
  // A place where a tensor is used, as a problem variable with, for each of its
  // values, the tilings in which it needs the tensor (one per input it feeds).
  struct Need {
    int variable;
    std::vector<std::vector<Tiling>> tilings;  // by value
  };

  int add_variable(size_t domain);
  std::vector<Tiling> made(Entry e) const;  // by value of the producer
  std::vector<Need> needs(Entry e) const;
  void add_operators(const Filter& filter);
  void add_results(const Filter& filter);
  void add_tensor(Entry e, const Filter& filter);
  void add_source_cost(Entry e, const std::vector<Tiling>& domain, const Need& need);
  void add_table(Entry e, int from, const std::vector<Tiling>& tilings, const Need& need);
  Plan plan_of(const std::vector<int>& values);
  Tiling best_source(Entry e, const std::vector<Tiling>& domain, const std::vector<Tiling>& needed);
  Cost source_cost(Entry e, const Tiling& tiling, const std::vector<Tiling>& needed);

  const Space& space_;
  Conversions conversions_;
  std::vector<int> domains_;
  std::vector<CostTable> tables_;
  std::vector<int> operator_variable_;                  // by node, or -1
  std::vector<std::vector<OperatorCuts>> operator_cuts_;  // by node
  std::vector<int> result_variable_;
  std::vector<std::vector<Tiling>> result_tilings_;
  std::map<Entry, int> tensor_variable_;
  std::map<Entry, std::vector<Tiling>> tensor_tilings_;
};

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_PROBLEM_H_
