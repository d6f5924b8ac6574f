// A plan: what is cut how. A value: it prints, saves to JSON, loads, can be
// edited by hand, and says everything that the lowering needs.
#ifndef SOYBEAN_SEARCH_PLAN_H_
#define SOYBEAN_SEARCH_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "graph/expand_batch_norm.h"
#include "graph/json.h"
#include "rules/rule.h"
#include "tiling/conversion.h"

namespace soybean {

// What an operator does at each cut: the factor of its rule that it cuts (an
// index), or kReplicated (every group computes the same), or kOwner (the first
// group computes alone).
// Cuts of the same factor divide it in the order of their levels (tiling.h).
using OperatorCuts = Division;

// The serial program, ready to be planned: batch statistics written out, the
// rule of every node known.
struct Program {
  ExpandedGraph expanded;
  std::vector<Rule> rules;  // by node; empty ones for variables

  std::vector<bool> gradients;  // by node: whether a gradient passes back through its outputs

  const Graph& graph() const { return expanded.graph; }
  bool requires_grad(Entry e) const { return gradients[static_cast<size_t>(e.node)]; }
  // Everything that must be complete at the end of the forward pass: the
  // outputs of the graph, then the batch statistics.
  std::vector<Entry> results() const;
};

// batch_norm: "exact" writes BatchNorm out, so that it may be cut along the batch
// with the statistics of the whole batch; "fused" keeps it as one operator, never
// cut along the batch in training; "local" keeps it and lets every group take the
// statistics of its own part.
Program prepare(const std::string& graph_request, const std::string& batch_norm);

// How an operator that is cut so needs its input, and leaves its output. An
// operator without a rule is computed by the owner: its operands are there.
Tiling input_tiling(const Rule& rule, size_t input, const OperatorCuts& cuts);
Tiling output_tiling(const Rule& rule, size_t output, const OperatorCuts& cuts);

// How a group makes a statistic of an operator that is cut so, and how all then have it.
Tiling statistics_made(const Rule& rule, const Statistics& statistics, const OperatorCuts& cuts);
Tiling statistics_needed(const Rule& rule, const Statistics& statistics, const OperatorCuts& cuts);
// How often it is joined: forward, and back where what it is taken of has a gradient.
int statistics_ways(const Program& program, int node, const Statistics& statistics);

// The choice of an operator by its name in a plan: a factor, "replicated" or "owner".
int parse_operator_choice(const Rule& rule, const std::string& text, const std::string& what);

struct Plan {
  Mesh mesh{1};
  std::string strategy;
  std::string batch_norm = "exact";
  bool whole_boundary = false;  // variables and outputs whole on the first device
  bool exact = true;            // whether the search proved the plan to be the best
  std::vector<OperatorCuts> operators;        // by node; empty for variables
  std::map<Entry, Tiling> tensors;            // every tensor at rest, by producer
  std::vector<Tiling> results;                // by Program::results()
};

// A state that several operators move (a BatchNorm that is used twice) rests in one
// tiling, so that all its batch statistics are left in that of the first. Returns
// whether that changes the plan.
bool leave_statistics_alike(const Program& program, Plan* plan);

// Throw Error naming `what`, for cuts or a tiling that cannot be.
void check_operator(const Mesh& mesh, const Rule& rule, const OperatorCuts& cuts,
                    const std::string& what);
void check_tensor(const Program& program, const Mesh& mesh, Entry e, const Tiling& tiling,
                  const std::string& what);
// Throws Error naming the tensor or operator that the plan gets wrong.
void check_plan(const Program& program, const Plan& plan);

Json tiling_json(const Tiling& tiling);  // its texts, to be written
Json write_plan(const Program& program, const Plan& plan);
Plan read_plan(const Program& program, const Json& json);
// The member that the program's preparation depends on.
std::string plan_batch_norm(const Json& plan);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_PLAN_H_
