#include "rules/given.h"

#include <algorithm>

#include "rules/attributes.h"
#include "rules/rule_builder.h"

namespace soybean {
namespace {

using Operand = GivenRule::Operand;
using Names = std::vector<std::string>;

class Reading {
 public:
  Reading(const GivenRule& given, const OperatorView& op) : given_(given), op_(op), rule_(op) {}

  Rule rule() {
    count("inputs", given_.inputs.size(), op_.inputs.size());
    count("outputs", given_.outputs.size(), op_.outputs.size());
    for (size_t i = 0; i < given_.inputs.size(); ++i) {
      inputs_.push_back(names(given_.inputs[i], op_.inputs[i].shape));
    }
    for (size_t i = 0; i < given_.outputs.size(); ++i) {
      outputs_.push_back(names(given_.outputs[i], op_.outputs[i].shape));
    }
    measure();
    for (size_t i = 0; i < given_.inputs.size(); ++i) {
      const Dims dims = indices(inputs_[i]);
      if (given_.inputs[i].addend) rule_.addend(dims);
      else rule_.input(dims);
    }
    for (const Names& dims : outputs_) rule_.output(indices(dims));
    attributes();
    if (given_.join == "mean") rule_.average();
    else if (given_.join != "sum") rule_.joined_by(given_.join);
    if (given_.once) rule_.random();
    rule_.zero_addends();
    const Rule rule = rule_.build();
    if (!rule.known) fail("does not hold together: no dim may be named twice in one tensor, and what one output "
                          "carries all must");
    return rule;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("operator '" + op_.node.name + "' (" + given_.op + "): its rule '" + given_.text + "' " + what);
  }

  void count(const char* what, size_t named, size_t present) const {
    if (named == present) return;
    fail("names " + std::to_string(named) + " " + what + ", but it has " + std::to_string(present));
  }

  // The name of every dim, "..." written out: as many dims as the operand has more than are named.
  Names names(const Operand& operand, const Shape& shape) const {
    const size_t further = static_cast<size_t>(
        std::count(operand.dims.begin(), operand.dims.end(), GivenRule::kFurtherDims));
    const bool fits = further == 0 ? shape.size() == operand.dims.size()
                                   : further == 1 && shape.size() + 1 >= operand.dims.size();
    if (!fits) {
      fail("gives '" + operand.name + "' " + std::to_string(operand.dims.size() - further) +
           (further > 0 ? " dims or more" : " dims") + ", but its shape is " + shape_text(shape));
    }
    Names names;
    for (const std::string& dim : operand.dims) {
      if (dim != GivenRule::kFurtherDims) {
        names.push_back(dim);
        continue;
      }
      const size_t more = shape.size() + 1 - operand.dims.size();
      for (size_t d = 0; d < more; ++d) names.push_back("further" + std::to_string(d));
    }
    return names;
  }

  // The factors, with the extents that their dims have.
  void measure() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      measure(given_.outputs[i], outputs_[i], op_.outputs[i].shape, false);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      measure(given_.inputs[i], inputs_[i], op_.inputs[i].shape, true);
    }
  }

  void measure(const Operand& operand, const Names& names, const Shape& shape, bool reduced) {
    for (size_t d = 0; d < names.size(); ++d) {
      if (names[d] == GivenRule::kWholeDim) continue;
      const auto found = factors_.find(names[d]);
      if (found == factors_.end()) {
        const int index = reduced ? rule_.reduced_factor(names[d], shape[d]) : rule_.factor(names[d], shape[d]);
        factors_[names[d]] = {index, shape[d], operand.name};
      } else if (found->second.size != shape[d]) {
        fail("says that " + names[d] + " runs along '" + found->second.operand + "', where it is " +
             std::to_string(found->second.size) + ", and along '" + operand.name + "' of shape " +
             shape_text(shape) + ", where it is " + std::to_string(shape[d]));
      }
    }
  }

  Dims indices(const Names& names) const {
    Dims dims;
    for (const std::string& name : names) {
      dims.push_back(name == GivenRule::kWholeDim ? kWhole : factors_.at(name).index);
    }
    return dims;
  }

  // What the rule says of the attributes, and that it says it of all that may be extents.
  void attributes() {
    for (const auto& [name, value] : op_.node.attrs) {
      const auto extent = given_.extents.find(name);
      const auto shape = given_.shapes.find(name);
      if (extent != given_.extents.end()) state_extent(name, value, extent->second);
      else if (shape != given_.shapes.end()) state_shape(name, value, shape->second);
      else if (given_.constants.count(name) == 0 && has_whole_number(value)) {
        fail("does not say what its attribute " + name + " = " + value +
             " is: name it in extents, shapes or constants");
      }
    }
  }

  void state_extent(const std::string& name, const std::string& value, const GivenRule::Extent& extent) {
    const auto factor = factors_.find(extent.factor);
    if (factor == factors_.end()) fail("has no factor " + extent.factor + ", whose extent is attribute " + name);
    const auto stated = parse_integer(value);
    int64_t expected;
    if (extent.block < 1 || __builtin_mul_overflow(factor->second.size, extent.block, &expected)) {
      fail("has an extent of " + std::to_string(extent.block) + " times " + extent.factor);
    }
    if (!stated || *stated != expected) {
      fail("says that attribute " + name + " is the extent of " + extent.factor + ", which makes it " +
           std::to_string(expected) + ", but it is " + value);
    }
    rule_.extent_attr(name, factor->second.index, extent.block);
  }

  void state_shape(const std::string& name, const std::string& value, const std::string& output) {
    for (size_t i = 0; i < given_.outputs.size(); ++i) {
      if (given_.outputs[i].name != output) continue;
      const auto stated = parse_integers(value, 1);
      const Shape& shape = op_.outputs[i].shape;
      if (!stated || !std::equal(stated->begin(), stated->end(), shape.begin(), shape.end())) {
        fail("says that attribute " + name + " is the shape of '" + output + "', " + shape_text(shape) +
             ", but it is " + value);
      }
      rule_.shape_attr(name, static_cast<int>(i));
      return;
    }
    fail("has no output '" + output + "', whose shape is attribute " + name);
  }

  static bool has_whole_number(const std::string& value) {
    const auto items = parse_integers(value, 8);
    return items && std::any_of(items->begin(), items->end(), [](const auto& item) { return item.has_value(); });
  }

  struct Found {
    int index;
    int64_t size;
    std::string operand;
  };

  const GivenRule& given_;
  const OperatorView& op_;
  RuleBuilder rule_;
  std::vector<Names> inputs_, outputs_;
  std::map<std::string, Found> factors_;
};

}  // namespace

Rule given_rule(const GivenRule& given, const OperatorView& op, bool has_states) {
  if (has_states) {
    throw Error("operator '" + op.node.name + "' (" + given.op + ") has auxiliary states, which each group would "
                "change on its own: take its rule back, and it is computed whole");
  }
  return Reading(given, op).rule();
}

}  // namespace soybean
