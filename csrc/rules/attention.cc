// MXNet's interleaved attention operators. The length is the first dim; each head has
// its query, key and value side by side, then the next head's follow:
//
//   selfatt_qk      x[t, n, h * 3 * d]                 -> scores[n * h, t, t]
//   selfatt_valatt  x[t, n, h * 3 * d] weights[n * h, t, t] -> out[t, n, h * d]
//   encdec_qk       queries[t, n, h * d] x[s, n, h * 2 * d] -> scores[n * h, t, s]
//   encdec_valatt   x[s, n, h * 2 * d] weights[n * h, t, s] -> out[t, n, h * d], a sum over s
//
// In self-attention one tensor holds queries and keys, so that t is whole. Scores and
// weights of four dims have n and h apart (rules/merged_dims.h). With three dims only
// the outer one of n and h can be cut, in blocks of the other.
#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

constexpr char kSelfScores[] = "_contrib_interleaved_matmul_selfatt_qk";
constexpr char kSelfContext[] = "_contrib_interleaved_matmul_selfatt_valatt";
constexpr char kCrossScores[] = "_contrib_interleaved_matmul_encdec_qk";
constexpr char kCrossContext[] = "_contrib_interleaved_matmul_encdec_valatt";

struct Attention {
  int n = kWhole, h = kWhole;
  bool merged = false;
};

// The factors of samples and heads for scores or weights of that shape; no value for
// attributes and shapes that are not understood.
std::optional<Attention> attention(RuleBuilder* rule, const OperatorView& op, const Shape& scores) {
  AttributeReader attrs(op.node.attrs);
  const int64_t heads = attrs.integer("heads");
  if (attrs.failed() || heads < 1 || op.inputs[0].shape.size() != 3) return std::nullopt;
  if (scores.size() != 3 && scores.size() != 4) return std::nullopt;
  const int64_t batch = op.inputs[0].shape[1];
  const bool merged = scores.size() == 4;
  if (merged ? scores[0] != batch || scores[1] != heads
             : scores[0] % heads != 0 || scores[0] / heads != batch) {
    return std::nullopt;
  }
  Attention found;
  found.merged = merged;
  if (merged || batch > 1 || heads == 1) found.n = rule->factor("n", batch);
  if (merged || batch == 1) {
    found.h = rule->factor("h", heads);
    rule->extent_attr("heads", found.h);
  }
  return found;
}

Dims score_dims(const Attention& a, int queries, int keys) {
  if (a.merged) return {a.n, a.h, queries, keys};
  return {a.n != kWhole ? a.n : a.h, queries, keys};
}

Rule self_scores_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1)) return Rule();
  RuleBuilder rule(op);
  const auto a = attention(&rule, op, op.outputs[0].shape);
  if (!a) return Rule();
  rule.input({kWhole, a->n, a->h}).output(score_dims(*a, kWhole, kWhole));
  if (a->merged) rule.merged_output(0);
  return rule.build();
}

Rule self_context_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1)) return Rule();
  RuleBuilder rule(op);
  const auto a = attention(&rule, op, op.inputs[1].shape);
  if (!a) return Rule();
  rule.input({kWhole, a->n, a->h}).input(score_dims(*a, kWhole, kWhole)).output({kWhole, a->n, a->h});
  if (a->merged) rule.merged_input(1);
  return rule.build();
}

Rule cross_scores_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.inputs[1].shape.size() != 3) return Rule();
  RuleBuilder rule(op);
  const auto a = attention(&rule, op, op.outputs[0].shape);
  if (!a) return Rule();
  const int t = rule.factor("t", op.inputs[0].shape[0]);
  const int s = rule.factor("s", op.inputs[1].shape[0]);
  rule.input({t, a->n, a->h}).input({s, a->n, a->h}).output(score_dims(*a, t, s));
  if (a->merged) rule.merged_output(0);
  return rule.build();
}

Rule cross_context_rule(const OperatorView& op) {
  if (!has_operands(op, 2, 1) || op.outputs[0].shape.size() != 3) return Rule();
  RuleBuilder rule(op);
  const auto a = attention(&rule, op, op.inputs[1].shape);
  if (!a) return Rule();
  const int t = rule.factor("t", op.outputs[0].shape[0]);
  const int s = rule.reduced_factor("s", op.inputs[0].shape[0]);
  rule.input({s, a->n, a->h}).input(score_dims(*a, t, s)).output({t, a->n, a->h});
  if (a->merged) rule.merged_input(1);
  return rule.build();
}

}  // namespace

bool is_interleaved_scores(const std::string& op) { return op == kSelfScores || op == kCrossScores; }

bool is_interleaved_context(const std::string& op) { return op == kSelfContext || op == kCrossContext; }

void register_attention_rules(RuleRegistry* registry) {
  (*registry)[kSelfScores] = self_scores_rule;
  (*registry)[kSelfContext] = self_context_rule;
  (*registry)[kCrossScores] = cross_scores_rule;
  (*registry)[kCrossContext] = cross_context_rule;
}

}  // namespace soybean
