#include <map>
#include <set>

#include "rules/rule.h"

namespace soybean {

bool stops_gradient(const std::string& op) {
  static const std::set<std::string> operators = {
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
      "broadcast_logical_and", "broadcast_logical_or", "broadcast_logical_xor"};
  return operators.count(op) > 0;
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

}  // namespace soybean
