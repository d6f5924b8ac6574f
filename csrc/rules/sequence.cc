// Operators over sequences: time is whole, samples are independent.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

struct SequenceAttributes {
  size_t time = 0;  // dim 0 or 1 of the data; the samples are the other
  bool lengths = false;
};

std::optional<SequenceAttributes> read_sequence(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  SequenceAttributes read;
  const int64_t axis = attrs.integer("axis", 0);
  read.lengths = attrs.boolean("use_sequence_length", false);
  if (attrs.failed() || axis < 0 || axis > 1) return std::nullopt;
  read.time = static_cast<size_t>(axis);
  if (!has_operands(op, read.lengths ? 2 : 1, 1)) return std::nullopt;
  if (op.inputs[0].shape.size() < 2) return std::nullopt;
  return read;
}

Rule sequence_rule(const OperatorView& op, bool drops_time) {
  const auto read = read_sequence(op);
  if (!read) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape, {read->time});
  Dims out = dims;
  if (drops_time) out.erase(out.begin() + static_cast<std::ptrdiff_t>(read->time));
  rule.input(dims);
  if (read->lengths) rule.input({dims[1 - read->time]});
  return rule.output(out).build();
}

// SequenceMask, SequenceReverse
Rule sequence_map_rule(const OperatorView& op) { return sequence_rule(op, false); }

Rule sequence_last_rule(const OperatorView& op) { return sequence_rule(op, true); }

}  // namespace

void register_sequence_rules(RuleRegistry* registry) {
  (*registry)["SequenceMask"] = sequence_map_rule;
  (*registry)["SequenceReverse"] = sequence_map_rule;
  (*registry)["SequenceLast"] = sequence_last_rule;
}

}  // namespace soybean
