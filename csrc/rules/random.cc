// Operators that draw random numbers, each element for itself, and the densities of what
// they draw. No two groups may draw for the same element (Rule::random): copies would
// differ.
#include <algorithm>

#include "rules/attributes.h"
#include "rules/families.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

// Every element of the shape that `shape` states.
Rule drawn_rule(const OperatorView& op) {
  if (!has_operands(op, 0, 1)) return Rule();
  AttributeReader attrs(op.node.attrs);
  attrs.integers("shape");
  if (attrs.failed()) return Rule();
  RuleBuilder rule(op);
  return rule.output(rule.dim_factors(op.outputs[0].shape)).shape_attr("shape", 0).random().build();
}

Rule drawn_like_rule(const OperatorView& op) {
  if (!has_operands(op, 1, 1) || op.inputs[0].shape != op.outputs[0].shape) return Rule();
  RuleBuilder rule(op);
  const Dims dims = rule.dim_factors(op.inputs[0].shape);
  return rule.input(dims).output(dims).random().build();
}

// The first `common` dims of a factor list, without what follows.
Dims leading(const Dims& dims, size_t common) {
  return Dims(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(std::min(common, dims.size())));
}

// parameters[n, ...] each -> out[n, ..., drawn for each parameter ...]; the parameters have
// `own` dims more that are whole.
Rule sampled_rule(const OperatorView& op, size_t own) {
  AttributeReader attrs(op.node.attrs);
  const Integers shape = attrs.integers("shape");
  if (attrs.failed() || op.inputs.empty() || op.outputs.empty()) return Rule();
  const size_t rank = op.inputs[0].shape.size();
  if (rank < own) return Rule();
  RuleBuilder rule(op);
  const size_t common = rank - own;
  // A vector of probabilities gives one number, of shape (1,).
  const bool one_number = common == 0 && shape.empty() && op.outputs[0].shape.size() == 1;
  const Dims out = rule.dim_factors(op.outputs[0].shape, one_number ? DimSet{0} : DimSet{});
  Dims parameter = leading(out, common);
  if (parameter.size() != common) return Rule();
  parameter.insert(parameter.end(), own, kWhole);
  for (size_t i = 0; i < op.inputs.size(); ++i) rule.input(parameter);
  for (size_t i = 0; i < op.outputs.size(); ++i) rule.output(out);
  if (!shape.empty()) rule.shape_attr("shape", 0, common);
  return rule.random().build();
}

Rule sample_rule(const OperatorView& op) { return sampled_rule(op, 0); }

// The last dim of the data are the probabilities.
Rule sample_multinomial_rule(const OperatorView& op) { return sampled_rule(op, 1); }

// Numbers of a row are unlike each other; the second output is how many were drawn for it.
Rule unique_zipfian_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  attrs.integers("shape");
  if (attrs.failed() || !has_operands(op, 0, 2) || op.outputs[0].shape.size() != 2) return Rule();
  RuleBuilder rule(op);
  const int n = rule.factor("n", op.outputs[0].shape[0]);
  return rule.output({n, kWhole}).output({n}).shape_attr("shape", 0).random().build();
}

// NumPy's: up to two parameters, which are broadcast to `size` or, without it, to each other.
Rule numpy_drawn_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto size = attrs.optional_integers("size");
  if (attrs.failed() || op.outputs.size() != 1) return Rule();
  RuleBuilder rule(op);
  const Shape& out = op.outputs[0].shape;
  const Dims dims = rule.dim_factors(out);
  for (const TensorType& input : op.inputs) {
    if (input.shape.size() > out.size()) return Rule();
    const size_t missing = out.size() - input.shape.size();
    Dims own;
    for (size_t d = 0; d < input.shape.size(); ++d) {
      own.push_back(input.shape[d] == out[missing + d] ? dims[missing + d] : kWhole);
    }
    rule.input(own);
  }
  if (size) rule.shape_attr("size", 0);
  return rule.output(dims).random().build();
}

// As many as `size` states for each element to which the parameters are broadcast.
Rule numpy_drawn_for_each_rule(const OperatorView& op) {
  Rule rule = numpy_drawn_rule(op);
  AttributeReader attrs(op.node.attrs);
  const auto size = attrs.optional_integers("size");
  if (!rule.known || !size) return rule;
  const size_t rank = op.outputs[0].shape.size();
  if (size->size() > rank) return Rule();
  rule.shape_attrs["size"].behind = rank - size->size();
  return rule;
}

// `size` draws, each of one number for every probability.
Rule numpy_multinomial_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto size = attrs.optional_integers("size");
  if (attrs.failed() || op.outputs.size() != 1 || op.outputs[0].shape.empty()) return Rule();
  RuleBuilder rule(op);
  const Shape& out = op.outputs[0].shape;
  for (const TensorType& input : op.inputs) rule.input(Dims(input.shape.size(), kWhole));
  rule.output(rule.dim_factors(out, {out.size() - 1}));
  if (size) rule.shape_attr("size", 0, 0, 1);
  return rule.random().build();
}

// Without replacement the draws depend on each other.
Rule choice_rule(const OperatorView& op) {
  AttributeReader attrs(op.node.attrs);
  const auto size = attrs.optional_integers("size");
  const bool replace = attrs.boolean("replace", true);
  if (attrs.failed() || op.outputs.size() != 1 || !replace) return Rule();
  RuleBuilder rule(op);
  for (const TensorType& input : op.inputs) rule.input(Dims(input.shape.size(), kWhole));
  rule.output(rule.dim_factors(op.outputs[0].shape));
  if (size) rule.shape_attr("size", 0);
  return rule.random().build();
}

// sample[n, ..., drawn for each parameter ...] parameters[n, ...] -> a density for each sample;
// `own` dims at the end of both belong to one sample.
Rule density(const OperatorView& op, size_t own) {
  if (op.inputs.size() < 2 || op.outputs.size() != 1 || op.inputs[0].shape.size() < own) return Rule();
  RuleBuilder rule(op);
  const Shape& sample = op.inputs[0].shape;
  Dims dims = rule.dim_factors(Shape(sample.begin(), sample.end() - static_cast<std::ptrdiff_t>(own)));
  const Dims out = dims;
  dims.insert(dims.end(), own, kWhole);
  rule.input(dims);
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    const size_t rank = op.inputs[i].shape.size();
    if (rank < own || rank > sample.size()) return Rule();
    Dims parameter = leading(out, rank - own);
    parameter.insert(parameter.end(), own, kWhole);
    rule.input(parameter);
  }
  return rule.output(out).build();
}

Rule density_rule(const OperatorView& op) { return density(op, 0); }
Rule dirichlet_density_rule(const OperatorView& op) { return density(op, 1); }

}  // namespace

void register_random_rules(RuleRegistry* registry) {
  for (const char* name : {"exponential", "gamma", "generalized_negative_binomial", "negative_binomial", "normal",
                           "poisson", "uniform"}) {
    (*registry)[std::string("_random_") + name] = drawn_rule;
    (*registry)[std::string("_random_") + name + "_like"] = drawn_like_rule;
    (*registry)[std::string("_sample_") + name] = sample_rule;
    (*registry)[std::string("_random_pdf_") + name] = density_rule;
  }
  (*registry)["_random_randint"] = drawn_rule;
  (*registry)["_random_pdf_dirichlet"] = dirichlet_density_rule;
  (*registry)["_sample_multinomial"] = sample_multinomial_rule;
  (*registry)["_sample_unique_zipfian"] = unique_zipfian_rule;
  for (const char* name : {"_npi_bernoulli", "_npi_exponential", "_npi_gamma", "_npi_gumbel", "_npi_logistic",
                           "_npi_normal", "_npi_pareto", "_npi_powerd", "_npi_rayleigh", "_npi_uniform",
                           "_npi_weibull"}) {
    (*registry)[name] = numpy_drawn_rule;
  }
  for (const char* name : {"_npi_normal_n", "_npi_uniform_n"}) (*registry)[name] = numpy_drawn_for_each_rule;
  (*registry)["_npi_multinomial"] = numpy_multinomial_rule;
  (*registry)["_npi_choice"] = choice_rule;
}

}  // namespace soybean
