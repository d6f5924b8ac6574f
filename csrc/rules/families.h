// The operator families: each adds its operators to the registry.
//
// Names are the canonical ones that MXNet writes into a symbol's JSON; an alias
// ("flatten", "_npx_fully_connected") never occurs there.
#ifndef SOYBEAN_RULES_FAMILIES_H_
#define SOYBEAN_RULES_FAMILIES_H_

#include <map>
#include <string>

#include "rules/rule.h"

namespace soybean {

using RuleRegistry = std::map<std::string, RuleFunction>;

// Whether all operands have one shape and every dim is for itself.
bool is_elementwise(const std::string& op);
// The same, but operands may be repeated along dims.
bool is_broadcasting(const std::string& op);
// Interleaved attention: from queries and keys to scores, and from weights to values.
bool is_interleaved_scores(const std::string& op);
bool is_interleaved_context(const std::string& op);

void register_elementwise_rules(RuleRegistry* registry);
void register_broadcast_rules(RuleRegistry* registry);
void register_dense_rules(RuleRegistry* registry);
void register_matrix_product_rules(RuleRegistry* registry);
void register_linear_algebra_rules(RuleRegistry* registry);
void register_diagonal_rules(RuleRegistry* registry);
void register_random_rules(RuleRegistry* registry);
void register_whole_rules(RuleRegistry* registry);
void register_convolution_rules(RuleRegistry* registry);
void register_pooling_rules(RuleRegistry* registry);
void register_normalization_rules(RuleRegistry* registry);
void register_reduction_rules(RuleRegistry* registry);
void register_reshape_rules(RuleRegistry* registry);
void register_permutation_rules(RuleRegistry* registry);
void register_joining_rules(RuleRegistry* registry);
void register_slicing_rules(RuleRegistry* registry);
void register_ordering_rules(RuleRegistry* registry);
void register_softmax_rules(RuleRegistry* registry);
void register_loss_rules(RuleRegistry* registry);
void register_indexing_rules(RuleRegistry* registry);
void register_sequence_rules(RuleRegistry* registry);
void register_dropout_rules(RuleRegistry* registry);
void register_attention_rules(RuleRegistry* registry);
void register_recurrent_rules(RuleRegistry* registry);
void register_deformable_convolution_rules(RuleRegistry* registry);
void register_detection_rules(RuleRegistry* registry);
void register_vision_rules(RuleRegistry* registry);
void register_image_rules(RuleRegistry* registry);
void register_quantization_rules(RuleRegistry* registry);

}  // namespace soybean

#endif  // SOYBEAN_RULES_FAMILIES_H_
