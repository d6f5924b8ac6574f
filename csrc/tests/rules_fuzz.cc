// Every rule with attributes and shapes at random: none may crash, and a rule
// that is known must fit its node. Run under the sanitizers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "rules/rule.h"
#include "rules/rule_json.h"

namespace soybean {
namespace {

using Random = std::mt19937;

size_t below(Random* random, size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(*random); }

template <typename T>
const T& choice(Random* random, const std::vector<T>& from) {
  return from[below(random, from.size())];
}

const std::vector<std::string> kNames = {
    "num_hidden", "no_bias", "flatten", "num_filter", "num_group", "kernel", "stride", "pad", "dilate", "adj",
    "target_shape", "layout", "global_pool", "pool_type", "pooling_convention", "axis", "axes", "use_global_stats",
    "num_groups", "mode", "act_type", "shape", "newshape", "lhs_axes", "transpose_a", "transpose_b",
    "a_axes_summed", "b_axes_summed", "subscripts", "keepdims", "exclude", "dim", "dim1", "dim2",
    "source", "destination", "repeats", "reps", "pad_width", "begin", "end", "step", "squeeze_axis",
    "use_length", "multi_output", "preserve_shape", "normalization", "output_dim", "depth",
    "use_sequence_length", "sample_type", "multi_input_mode", "input_dim", "heads", "start", "repeat", "p",
    "num_deformable_group", "no_trans", "num_args", "min_calib_range", "max_calib_range", "quantized", "with_sum",
    "offset", "k", "axis1", "axis2", "rightside", "transpose", "size", "replace", "weighted", "N", "M", "stop",
    "dtype", "stype"};

const std::vector<std::string> kValues = {
    "", "None", "0", "1", "2", "3", "-1", "-2", "9223372036854775807", "-9223372036854775808",
    "99999999999999999999", "()", "(0,)", "(1, 2)", "[0, 1, 2]", "(-1, 0)", "(None, 1)", "((0, 0), (1, 1))",
    "(0, 0, 1, 1)", "((((", "(1", "1)", "(,)", "True", "False", "true", "NCHW", "avg", "prelu", "nearest",
    "channel", "null", "batch", "valid", "ij,jk->ik", "ii->i", "->", ",,->", "a->aa", "garbage", "(3, 3)", "4"};

Shape random_shape(Random* random) {
  static const std::vector<int64_t> extents = {1, 1, 2, 3, 4, 4, 6, 12, int64_t{1} << 31, int64_t{1} << 62, 0};
  Shape shape;
  for (size_t rank = below(random, 6); rank > 0; --rank) {
    shape.push_back(extents[below(random, below(random, 8) == 0 ? extents.size() : 8)]);
  }
  return shape;
}

std::vector<TensorType> random_types(Random* random, size_t count) {
  std::vector<TensorType> types(count);
  const Shape common = random_shape(random);
  for (TensorType& type : types) type.shape = below(random, 3) == 0 ? random_shape(random) : common;
  return types;
}

bool has_window(const Rule& rule, size_t input, size_t dim, int factor) {
  for (const Window& w : rule.windows) {
    if (w.input == input && w.dim == dim) return w.factor == factor;
  }
  return false;
}

// `input`: its number, or none for an output, which has no windows.
bool operand_fits(const Rule& rule, const TensorRule& operand, const TensorType& type, size_t input = SIZE_MAX) {
  if (operand.dims.size() != type.shape.size()) return false;
  std::set<int> seen;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const int index = operand.dims[d];
    if (index == kWhole) continue;
    if (index < 0 || index >= static_cast<int>(rule.factors.size()) || !seen.insert(index).second) return false;
    const Factor& factor = rule.factors[static_cast<size_t>(index)];
    if (has_window(rule, input, d, index)) {
      if (!factor.spatial || type.shape[d] < factor.size) return false;
      continue;
    }
    if (factor.size < 1 || type.shape[d] % factor.size != 0) return false;
    if (type.shape[d] != factor.size && !factor.even) return false;
  }
  return true;
}

bool rule_fits(const Rule& rule, const OperatorView& op) {
  if (!rule.known) return rule.factors.empty() && rule.inputs.empty() && rule.outputs.empty();
  if (rule.inputs.size() != op.inputs.size() || rule.outputs.size() != op.outputs.size()) return false;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!operand_fits(rule, rule.inputs[i], op.inputs[i], i)) return false;
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (!operand_fits(rule, rule.outputs[i], op.outputs[i])) return false;
  }
  return true;
}

// Returns how many of the drawn operators had a rule.
int fuzz(const std::string& name, RuleFunction function, int rounds, Random* random) {
  int known = 0;
  for (int round = 0; round < rounds; ++round) {
    Node node;
    node.op = name;
    for (size_t n = below(random, 6); n > 0; --n) node.attrs[choice(random, kNames)] = choice(random, kValues);
    const std::vector<TensorType> inputs = random_types(random, below(random, 9));
    const std::vector<TensorType> outputs = random_types(random, below(random, 4));
    const OperatorView op{node, inputs, outputs, below(random, 2) == 0};
    const Rule rule = function(op);
    if (!rule_fits(rule, op)) {
      std::fprintf(stderr, "%s: a rule does not fit its node: %s\n", name.c_str(), rule_json(rule).c_str());
      std::exit(1);
    }
    known += rule.known ? 1 : 0;
  }
  return known;
}

}  // namespace
}  // namespace soybean

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1u);
  int known = 0;
  for (const auto& entry : soybean::rule_registry()) {
    known += soybean::fuzz(entry.first, entry.second, rounds, &random);
  }
  std::printf("%d rules were known\n", known);
  return known > 0 ? 0 : 1;
}
