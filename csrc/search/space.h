// The search space: for every operator, tensor and result of a program, the
// choices that a search may make, as counts.
//
// Cuts of one class can be exchanged for each other (tiling/counts.h), so each
// choice stands here for all orders and exchanges of its cuts: one representative
// of each combination of counts.
#ifndef SOYBEAN_SEARCH_SPACE_H_
#define SOYBEAN_SEARCH_SPACE_H_

#include <map>
#include <random>
#include <string>
#include <vector>

#include "search/pins.h"
#include "search/plan.h"

namespace soybean {

// A use of a tensor: input `input` of operator `node`, or, with node == -1,
// result number `input`.
struct Use {
  int node;
  size_t input;
};

struct SpaceOptions {
  bool whole_boundary = false;
  std::vector<Pin> pins;
  // Whether the dims of a sample may be cut: height and width, positions.
  bool sample_dims = false;
  // Whether the time that operators compute is priced, so that one that could be cut may
  // as well be replicated, or left to the owner, where that costs less than to move
  // its operands.
  bool priced_computation = false;
  // Whether every operator may also be replicated or computed by the owner
  // where it could be cut (random plans; the searches cut whatever can be cut,
  // or the cheapest plan would be to use one device).
  bool free_operators = false;
};

class Space {
 public:
  // Throws Error for pins that contradict each other or the program.
  Space(const Program& program, const Mesh& mesh, const SpaceOptions& options);

  const Program& program() const { return program_; }
  const Mesh& mesh() const { return mesh_; }
  const Graph& graph() const { return program_.graph(); }
  const std::vector<Entry>& results() const { return results_; }
  const std::vector<Use>& uses(Entry e) const;

  // Every way to cut an operator.
  std::vector<OperatorCuts> operator_cuts(int node) const;
  // Every way a tensor may rest between its producer and its uses.
  std::vector<Tiling> tensor_tilings(Entry e) const;
  // Every way a result may be left.
  std::vector<Tiling> result_tilings(size_t result) const;

  // Whether a pin fixes the tiling of the tensor or the cuts of the operator.
  bool is_pinned(Entry e) const { return pins_.tensors.count(e) > 0; }
  bool is_pinned(int node) const { return pins_.operators.count(node) > 0; }
  // Whether the tensor is a variable that must never be converted: an operator
  // takes nothing but a variable there (the moving statistics of a fused BatchNorm).
  bool is_fixed(Entry e) const { return fixed_by(e) != nullptr; }
  // The first use that makes it so; null for other tensors.
  const Use* fixed_by(Entry e) const;
  // Where the operators put such a variable.
  Tiling fixed_tiling(Entry e, const std::vector<OperatorCuts>& operators) const;

  // Whether some operator or tensor has too many choices on so many devices, and those
  // with many different ones were left out: what is best is best among the others.
  bool is_limited() const { return limited_; }

  bool is_whole_boundary() const { return options_.whole_boundary; }

  // A random way, cuts and levels included.
  OperatorCuts random_cuts(int node, std::mt19937_64* random) const;
  Tiling random_tiling(Entry e, std::mt19937_64* random) const;
  Tiling random_result(size_t result, std::mt19937_64* random) const;

 private:
  size_t most_ways() const;
  std::vector<int> usable_factors(int node) const;
  std::vector<Choice> split_dims(Entry e) const;
  bool may_be_whole(int node) const;
  bool changes_variables(int node) const;
  // Whether one group alone may hold a tensor that has room to be spread out.
  bool may_be_owned(Entry e) const;
  bool is_small(Entry e) const;
  bool is_wanted_replicated(Entry e) const;
  bool touches_whole(Entry e) const;
  std::vector<Tiling> tilings(Entry e, bool replicated, bool owner) const;
  std::vector<OperatorCuts> ways_to_cut(const Rule& rule, const std::vector<int>& factors,
                                        bool whole_allowed, bool alone) const;
  std::vector<Tiling> ways_to_tile(const Shape& shape, const std::vector<Choice>& choices, bool owner) const;
  void find_uses();
  void find_useful_factors();

  const Program& program_;
  const Mesh mesh_;
  const SpaceOptions options_;
  std::vector<Entry> results_;
  std::map<Entry, std::vector<Use>> uses_;
  std::vector<std::vector<bool>> useful_;  // by node and factor
  int64_t largest_ = 0;                    // bytes of the largest tensor
  ResolvedPins pins_;
  // Layers repeat: what operators and tensors alike may do is listed once.
  mutable std::map<std::vector<int64_t>, std::vector<Division>> known_cuts_, known_tilings_;
  mutable bool limited_ = false;
};

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_SPACE_H_
