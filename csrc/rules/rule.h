// How an operator may be cut, as data.
//
// A rule gives each index of the operator's einsum-like meaning a name, a
// *factor*. FullyConnected is
//
//     data[n, k]  weight[m, k]  bias[m]  ->  out[n, m]
//
// with factors n, m, k. Cutting a factor by p makes p groups that each compute
// a range of it: every tensor dim that carries the factor is split, every
// tensor without it is replicated, and an output is a *partial sum* when the
// factor is reduced (k). Nothing outside rules/ knows an operator by name.
#ifndef SOYBEAN_RULES_RULE_H_
#define SOYBEAN_RULES_RULE_H_

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace soybean {

// A dim that no factor runs along: every group holds all of it.
constexpr int kWhole = -1;

// Every output of a rule carries the factor, or none does (then it is reduced, `same`,
// or a `statistic` is taken over it). A further output that does not, beside one that
// does, is the same in every group and has no gradient.
struct Factor {
  std::string name;    // "n", "m", "k", ...: unique in the rule
  int64_t size = 1;    // the range 0..size-1 that is divided
  bool reduced = false;  // no output dim carries it: cutting it leaves partial sums
  // No output depends on it, so that every group computes the same: an operator that
  // asks for the extents of its input only need not have all of it.
  bool same = false;
  // The operator takes a statistic over it (softmax its maximum and sum, LayerNorm mean
  // and variance): a group that holds a part runs the operator written out
  // (rules/written_out.h), and all groups join their statistics (Rule::statistics).
  bool statistic = false;
  // Whether every part must have the same length. True when some tensor dim is
  // a multiple of this factor (dims[d] = factor, extent = size * block, block > 1),
  // where parts of unequal length would not line up with that dim's own tiles.
  bool even = false;
  bool batch = false;  // the sample dim: what data parallelism cuts
  // An image dim over which windows run (Rule::windows): cutting it takes a halo from
  // the neighbours.
  bool spatial = false;
};

// A window that runs along a dim of an input: row j of the output, which is what
// the factor counts, is made of the rows j*stride - pad + i*dilate of the input,
// 0 <= i < kernel, as far as there are such rows. The input dim is divided by the
// same cuts, in parts of its own extent, which is no less than the factor's; a
// group that makes the rows [begin, end) needs some rows of its neighbours, the
// *halo* (search/halo.h).
struct Window {
  size_t input = 0, dim = 0;
  int factor = 0;  // index into Rule::factors
  int64_t kernel = 1, stride = 1, pad = 0, dilate = 1;
  bool round_up = false;  // a last window may start that does not end within the padding

  int64_t reach() const { return (kernel - 1) * dilate + 1; }
  // How many rows the operator makes of an input of this extent.
  int64_t output_extent(int64_t extent) const {
    return (extent + 2 * pad - reach() + (round_up ? stride - 1 : 0)) / stride + 1;
  }
};

// Which factor runs along each dim of one tensor.
struct TensorRule {
  std::vector<int> dims;  // index into Rule::factors, or kWhole
  // An addend that may enter a partial sum only once (a bias): where a reduced
  // factor is cut, the operand exists on the first group alone, and the other
  // groups run the operator without it (see Rule::without_addends).
  bool addend = false;
  // MXNet's operator has dims 0 and 1 as one dim; every group's part is reshaped.
  bool merged = false;
};

// What an attribute that states an extent becomes in a group: the length of the
// group's range of the factor, times `block` (num_filter of a convolution in
// groups is the number of groups times the filters of one).
struct Extent {
  int factor = 0;  // index into Rule::factors
  int64_t block = 1;
};

// Dims of an output that an attribute states as a shape: from `begin` on, up to the one
// that is `behind` the last ones (0: to the end).
struct ShapePart {
  int output = 0;
  size_t begin = 0, behind = 0;
};

// What an attribute that states the first number of a series becomes in a group:
// `first`, and `step` more for each index before the group's range of the factor; or, for
// the number behind the last one, before the range's end.
struct SeriesStart {
  int factor = 0;  // index into Rule::factors
  double first = 0, step = 1;
  bool at_end = false;
};

// An input that holds indices into a factor's range. A group whose range of the
// factor begins at b is given the indices less b. Where the factor is reduced, an
// output element whose index belongs to another group counts as 0 (each element is
// then one group's alone); an index below 0 belongs to the first group and one
// behind the end to the last, as MXNet clips them.
struct IndexInto {
  size_t input = 0;
  int factor = 0;  // index into Rule::factors
};

// An operand behind the inputs which each group makes on its own: a vector along the
// group's range of a factor, by an operator without inputs (_zeros, _ones).
struct OwnOperand {
  std::string op, dtype;
  int itemsize = 4;
  int factor = 0;  // index into Rule::factors
};

// A tensor that an operator makes on the way where a factor with a `statistic` is cut:
// each group has its own part of it, and all get the whole.
struct Statistics {
  Shape shape;            // of the whole operator
  std::vector<int> dims;  // index into Rule::factors, or kWhole
  int itemsize = 4;
  bool gradient = true;   // whether a gradient goes back through it
};

struct Rule {
  std::vector<Factor> factors;
  std::vector<TensorRule> inputs;   // as many as the node's inputs
  std::vector<TensorRule> outputs;  // as many as the node's visible outputs

  std::vector<Window> windows;      // at most one along a dim

  // Attributes that state an extent (num_hidden -> m).
  std::map<std::string, Extent> extent_attrs;
  // Attributes that state a shape: their value becomes the group's shape of that
  // output, as "(2, 3)" (shape of reshape -> output 0), or some dims of it.
  std::map<std::string, ShapePart> shape_attrs;
  // Attributes that state the start of a series along a factor (start of arange_like).
  std::map<std::string, SeriesStart> start_attrs;
  std::vector<IndexInto> indices;
  // Attributes that a group is given in place of the node's own, to state the
  // same thing in a form that does not depend on the group's extents (squeeze
  // of all dims of extent 1 must not remove a dim that became 1 by a cut).
  Attributes restated;
  // The operator that a group runs in place of the node's own, with `restated` as its
  // only attributes: one that computes the same and does not fail on parts. Empty: the
  // node's own.
  std::string runs_as;
  // For an operator that runs as another one, of more inputs.
  std::vector<OwnOperand> own_operands;
  // Attributes for a group that runs without its addends (no_bias -> True).
  Attributes without_addends;
  // The operator that such a group runs, with `without_addends` as its only attributes
  // (gemm without its addend is gemm2). Empty: the node's own.
  std::string runs_without_addends_as;
  // Such a group runs the operator as it is, with zeros for its addends.
  bool zero_addends = false;
  // What the groups' results are joined with where a reduced factor is cut: "max" or
  // "min"; empty for a sum.
  std::string joined_by;
  // Where factors with a `statistic` are cut.
  std::vector<Statistics> statistics;
  // For an average over reduced factors: the group's result is an average over
  // its own range, and is scaled by (own length / whole length) of each reduced
  // factor that is cut, so that the partial sums add up to the whole average.
  bool average = false;
  // Never computed by two groups on the same elements: draws random numbers, or
  // sends back a gradient of its own making whatever gradient it is given
  // (SoftmaxOutput), which would then count twice.
  bool random = false;
  // Whether there is a rule at all. Without one (false), the operator is
  // computed whole by one device and everything else here is empty.
  bool known = false;
};

// The rule of a node. `type(i)` of its inputs and outputs come from the graph.
// Never throws for an operator that it does not know or whose attributes it
// does not understand: it returns a Rule with known == false. Throws Error for a
// rule that came with the graph and does not fit the node (rules/given.h).
// `training` tells operators that act otherwise in training (BatchNorm).
Rule find_rule(const Graph& graph, int node, bool training);

// Whether an operator sends no gradient to its inputs (BlockGrad, argmax).
bool stops_gradient(const std::string& op);

// Whether a gradient comes to a node and goes on: to a variable that wants one, or to
// some input. `known`: the same of all nodes before it.
bool carries_gradient(const Node& node, const std::vector<bool>& known);

// Whether an operator has a gradient for an input. MXNet writes none for labels, lengths
// and indices, so that what was in the memory before is taken for it, or refuses to.
bool has_gradient(const Node& node, size_t input);

// Whether the gradients that an operator sends to its inputs are known to be made by
// a backward node, which MXNet places on the operator's device. Others hand on their
// output's gradient itself (add_n), or differentiate into ordinary operators
// (transpose), which MXNet places by guess.
bool has_backward_node(const std::string& op);

// Whether a node may have a control dependency. MXNet 1.9.1 marks some operators of the
// forward pass as backward ones, and takes what these depend on for their forward node.
bool may_follow(const std::string& op);

// Whether MXNet hands an operator's code the attributes that belong to the graph, such as the
// device, as if they were its own: those of an operator written in Python, which refuses them. Its
// node has none, and MXNet places it on the device of its first input.
bool takes_hidden_attributes(const std::string& op);

// Whether an input must be a variable itself, not something computed: a state that
// the operator changes, or the weight of a Deconvolution in single precision, which
// oneDNN cannot take otherwise.
bool takes_variable_only(const Graph& graph, int node, size_t input);

// An operator's rule, given its attributes and the types around it.
struct OperatorView {
  const Node& node;
  const std::vector<TensorType>& inputs;
  const std::vector<TensorType>& outputs;
  bool training;
};
using RuleFunction = Rule (*)(const OperatorView&);

// The registry: operator name -> rule. One file per operator family fills it.
const std::map<std::string, RuleFunction>& rule_registry();

}  // namespace soybean

#endif  // SOYBEAN_RULES_RULE_H_
