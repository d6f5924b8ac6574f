#include <algorithm>

#include "rules/families.h"
#include "rules/given.h"

namespace soybean {

const std::map<std::string, RuleFunction>& rule_registry() {
  static const RuleRegistry registry = [] {
    RuleRegistry all;
    register_elementwise_rules(&all);
    register_broadcast_rules(&all);
    register_dense_rules(&all);
    register_matrix_product_rules(&all);
    register_linear_algebra_rules(&all);
    register_diagonal_rules(&all);
    register_random_rules(&all);
    register_whole_rules(&all);
    register_convolution_rules(&all);
    register_pooling_rules(&all);
    register_normalization_rules(&all);
    register_reduction_rules(&all);
    register_reshape_rules(&all);
    register_permutation_rules(&all);
    register_joining_rules(&all);
    register_slicing_rules(&all);
    register_ordering_rules(&all);
    register_softmax_rules(&all);
    register_loss_rules(&all);
    register_indexing_rules(&all);
    register_sequence_rules(&all);
    register_dropout_rules(&all);
    register_attention_rules(&all);
    register_recurrent_rules(&all);
    register_deformable_convolution_rules(&all);
    register_detection_rules(&all);
    register_vision_rules(&all);
    register_image_rules(&all);
    register_quantization_rules(&all);
    return all;
  }();
  return registry;
}

Rule find_rule(const Graph& graph, int node, bool training) {
  const Node& n = graph.node(node);
  std::vector<TensorType> inputs;
  for (Entry e : n.inputs) inputs.push_back(graph.type(e));
  const OperatorView view{n, inputs, n.outputs, training};
  if (n.rule != nullptr) {
    const bool has_states = std::any_of(n.inputs.begin(), n.inputs.end(), [&](const Entry& e) {
      return graph.node(e.node).role == Role::kAuxiliary;
    });
    return given_rule(*n.rule, view, has_states);
  }
  const auto found = rule_registry().find(n.op);
  return found == rule_registry().end() ? Rule() : found->second(view);
}

}  // namespace soybean
