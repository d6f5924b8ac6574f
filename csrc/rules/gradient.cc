#include <algorithm>
#include <map>
#include <set>

#include "rules/rule.h"

namespace soybean {

bool stops_gradient(const std::string& op) {
  static const std::set<std::string> operators = {
      "_npi_around", "_npi_full_like",
      // comparisons and logic
      "_npi_equal", "_npi_not_equal", "_npi_greater", "_npi_greater_equal", "_npi_less",
      "_npi_less_equal", "_npi_equal_scalar", "_npi_not_equal_scalar", "_npi_greater_scalar",
      "_npi_greater_equal_scalar", "_npi_less_scalar", "_npi_less_equal_scalar",
      "_logical_and_scalar", "_logical_or_scalar", "_logical_xor_scalar", "_npi_logical_not",
      "_npi_isfinite", "_npi_isinf", "_npi_isnan", "_npi_isneginf", "_npi_isposinf",
      // overlaps of boxes
      "_contrib_MultiBoxTarget", "_contrib_bipartite_matching", "_contrib_box_iou",
      // to which MXNet 1.9.1 gives no gradient, though there is one
      "_npi_std", "_npi_var", "_npi_percentile", "_np_atleast_1d", "_np_atleast_2d",
      "_np_atleast_3d", "_npi_eig", "_npi_eigh", "_npi_eigvals", "_npi_eigvalsh", "_npi_pinv",
      "_npi_pinv_scalar_rcond",
      // draws that do not pass a gradient to their parameters
      "_random_exponential_like", "_random_gamma_like",
      "_random_generalized_negative_binomial_like", "_random_negative_binomial_like",
      "_random_normal_like", "_random_poisson_like", "_random_uniform_like", "_sample_exponential",
      "_sample_gamma", "_sample_generalized_negative_binomial", "_sample_negative_binomial",
      "_sample_normal", "_sample_poisson", "_sample_uniform", "_npi_uniform", "_npi_uniform_n",
      "_npi_bernoulli", "_npi_powerd", "_npi_gamma",
      // zero almost everywhere, and what is no function of the values
      "BlockGrad",     "_contrib_arange_like", "argmax",       "argmin",        "argmax_channel", "argsort",
      "ceil",          "fix",          "floor",         "one_hot",        "ones_like",
      "rint",          "round",        "shape_array",   "sign",           "size_array",
      "trunc",         "zeros_like",   "_npi_argmax",   "_npi_argmin",    "_npi_ceil",
      "_npi_fix",      "_npi_floor",   "_npi_rint",     "_npi_sign",      "_npi_trunc",
      "_equal",        "_not_equal",   "_greater",      "_greater_equal", "_lesser",
      "_lesser_equal", "_equal_scalar", "_not_equal_scalar", "_greater_scalar",
      "_greater_equal_scalar", "_lesser_scalar", "_lesser_equal_scalar", "broadcast_equal",
      "broadcast_not_equal", "broadcast_greater", "broadcast_greater_equal", "broadcast_lesser",
      "broadcast_lesser_equal", "logical_not", "_logical_and", "_logical_or", "_logical_xor",
      "broadcast_logical_and", "broadcast_logical_or", "broadcast_logical_xor",
      "_contrib_box_decode", "_contrib_box_encode", "_contrib_index_array"};
  return operators.count(op) > 0;
}

bool carries_gradient(const Node& node, const std::vector<bool>& known) {
  if (node.is_variable()) return node.requires_grad;
  if (stops_gradient(node.op)) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&known](const Entry& e) { return known[static_cast<size_t>(e.node)]; });
}

bool has_gradient(const Node& node, size_t input) {
  // The first of the inputs that have none; all behind it have none either.
  static const std::map<std::string, size_t> without = {
      {"CTCLoss", 1},
      {"LinearRegressionOutput", 1},
      {"LogisticRegressionOutput", 1},
      {"MAERegressionOutput", 1},
      {"SVMOutput", 1},
      {"SequenceLast", 1},
      {"SequenceMask", 1},
      {"SequenceReverse", 1},
      {"SoftmaxOutput", 1},
      {"_contrib_boolean_mask", 1},
      {"softmax_cross_entropy", 1}};
  // One input alone: indices of rows.
  static const std::map<std::string, size_t> indices = {{"Embedding", 0}, {"_contrib_index_copy", 1}};
  const auto first = without.find(node.op);
  const auto index = indices.find(node.op);
  const auto lengths = node.attrs.find("use_sequence_length");  // of RNN, behind its states
  if (node.op == "RNN" && lengths != node.attrs.end() && input + 1 == node.inputs.size()) {
    return lengths->second != "True" && lengths->second != "1";
  }
  return (first == without.end() || input < first->second) &&
         (index == indices.end() || input != index->second);
}

bool has_backward_node(const std::string& op) {
  // Those that weights go into: a copy of a weight costs, one of a small tensor does not.
  // None of our own: MXNet lets an operator of a library overwrite where it is to add.
  static const std::set<std::string> operators = {
      "BatchNorm", "Convolution", "Deconvolution", "Embedding",     "FullyConnected",
      "SliceChannel",
      "GroupNorm", "InstanceNorm", "LayerNorm",    "RNN",           "batch_dot",
      "dot"};
  return operators.count(op) > 0;
}

bool takes_hidden_attributes(const std::string& op) { return op == "Custom"; }

bool may_follow(const std::string& op) { return op != "gather_nd" && op != "scatter_nd"; }

}  // namespace soybean
