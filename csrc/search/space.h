// The search space: what each operator and each tensor may choose.
#ifndef SOYBEAN_SEARCH_SPACE_H_
#define SOYBEAN_SEARCH_SPACE_H_

#include <map>
#include <string>
#include <vector>

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
  std::map<std::string, Tiling> pins;  // tilings of variables, by name
  // Whether every operator may also be replicated or computed by the owner
  // where it could be cut (random plans; the searches cut whatever can be cut,
  // or the cheapest plan would be to use one device).
  bool free_operators = false;
};

class Space {
 public:
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
  // The choices that the conversions of a tensor may pass through.
  std::vector<Choice> conversion_choices(Entry e) const;

  // Whether the tensor is a variable that must never be converted: an operator
  // takes nothing but a variable there (the moving statistics of a fused BatchNorm).
  bool is_fixed(Entry e) const;

 private:
  std::vector<Choice> split_dims(Entry e) const;
  bool may_be_whole(int node) const;
  bool is_small(Entry e) const;
  bool is_used_whole(Entry e) const;
  std::vector<Tiling> tilings(Entry e, bool replicated, bool owner) const;
  void find_uses();
  void find_useful_factors();

  const Program& program_;
  const Mesh mesh_;
  const SpaceOptions options_;
  std::vector<Entry> results_;
  std::map<Entry, std::vector<Use>> uses_;
  std::vector<std::vector<bool>> useful_;  // by node and factor
  int64_t largest_ = 0;                    // bytes of the largest tensor
};

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_SPACE_H_
