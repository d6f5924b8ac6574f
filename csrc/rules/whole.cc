// Operators each part of whose result needs all of their operands. Nothing can be cut, but
// unlike operators without a rule they may be computed by every device that needs the result.
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

Rule whole_rule(const OperatorView& op) {
  RuleBuilder rule(op);
  for (const TensorType& input : op.inputs) rule.input(Dims(input.shape.size(), kWhole));
  for (const TensorType& output : op.outputs) rule.output(Dims(output.shape.size(), kWhole));
  return rule.build();
}

}  // namespace

void register_whole_rules(RuleRegistry* registry) {
  for (const char* name : {
           // one truth value of all elements
           "_contrib_allclose", "_npi_share_memory", "_npx_constraint_check", "all_finite", "multi_all_finite",
           // places count against each other, or extents alone
           "_np_diagflat", "_npi_diag_indices_from", "_npi_ediff1d", "shape_array", "size_array",
           // one matrix
           "_npi_tensorinv", "_npi_tensorsolve",
           // the results are not alike: the counts of parts add up, the edges do not
           "_histogram",
           // MXNet 1.9.1 computes nothing for a part in which no sample has a label
           "CTCLoss"}) {
    (*registry)[name] = whole_rule;
  }
}

}  // namespace soybean
