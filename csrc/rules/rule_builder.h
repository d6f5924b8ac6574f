// Builds a Rule and refuses one that is not consistent.
//
// A rule function names the factors, lists the dims of every operand, and
// returns build(). Whatever does not fit the node's actual shapes (an operand
// too many, a rank or an extent that differs, an empty tensor) makes build()
// return an unknown rule, so that a mistake costs speed and not correctness.
#ifndef SOYBEAN_RULES_RULE_BUILDER_H_
#define SOYBEAN_RULES_RULE_BUILDER_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rules/rule.h"

namespace soybean {

using Dims = std::vector<int>;    // factor index or kWhole, per dim
using DimSet = std::set<size_t>;  // dim numbers

// The attributes of windows over images, one item per image dim; empty is all 1
// (pad: all 0).
struct WindowSizes {
  std::vector<int64_t> kernel, stride, pad, dilate;
  bool round_up = false;
};

class RuleBuilder {
 public:
  explicit RuleBuilder(const OperatorView& op) : op_(op) {}

  // A factor that some output dim carries; its index.
  int factor(const std::string& name, int64_t size);
  // A factor over which the outputs are sums.
  int reduced_factor(const std::string& name, int64_t size);
  // A factor that the outputs do not depend on; its index.
  int same_factor(const std::string& name, int64_t size);
  // Of a factor that exists, over which the operator takes a statistic.
  RuleBuilder& takes_statistic(int factor);
  // A tensor that is joined where such a factor is cut. (See Statistics.)
  RuleBuilder& statistics(const Shape& shape, Dims dims, int itemsize, bool gradient = true);
  // One factor for each dim of `shape` but those of `whole`, which are kWhole.
  // Dim 0 is called "n", dim i "di".
  Dims dim_factors(const Shape& shape, const DimSet& whole = {});
  // As dim_factors, with the names of image_dim_names.
  Dims image_factors(const Shape& shape, size_t channel, const DimSet& whole = {});

  RuleBuilder& input(Dims dims);
  RuleBuilder& addend(Dims dims);  // an input that enters a partial sum once
  RuleBuilder& output(Dims dims);
  // An output without a gradient that is the same in every group, though others carry the
  // factors that are cut: made of operands that do not carry them.
  RuleBuilder& alike_output(Dims dims);
  // Along a dim of an input; the factor's size must be the output extent.
  RuleBuilder& window(const Window& window);
  RuleBuilder& merged_input(size_t index);  // see TensorRule::merged
  RuleBuilder& merged_output(size_t index);
  RuleBuilder& extent_attr(const std::string& name, int factor, int64_t block = 1);
  RuleBuilder& start_attr(const std::string& name, int factor, double first, double step);
  RuleBuilder& stop_attr(const std::string& name, int factor, double first, double step);
  RuleBuilder& index_into(size_t input, int factor);
  // `behind`: how many dims at the output's end are not part of it.
  RuleBuilder& shape_attr(const std::string& name, int output, size_t begin = 0, size_t behind = 0);
  RuleBuilder& restate(const std::string& name, const std::string& value);
  RuleBuilder& runs_as(const std::string& op);
  RuleBuilder& own_operand(const std::string& op, int factor, int itemsize);  // 4 or 8
  RuleBuilder& without_addends(const std::string& name, const std::string& value);
  RuleBuilder& runs_without_addends_as(const std::string& op);
  RuleBuilder& zero_addends();
  RuleBuilder& average();
  RuleBuilder& joined_by(const std::string& op);
  RuleBuilder& random();

  // The rule; unknown when it does not fit the node.
  Rule build();

 private:
  bool operands_fit();
  bool operand_fits(const TensorRule& operand, const Shape& shape, const DimSet& windowed);
  bool window_fits(const Window& window) const;
  bool names_are_unique() const;
  bool outputs_agree() const;
  void mark_batch();

  const OperatorView& op_;
  Rule rule_;
  std::set<size_t> alike_outputs_;
};

// The names of the dims of an image tensor: n, c (at `channel`), then w, (h, w)
// or (d, h, w).
std::vector<std::string> image_dim_names(size_t rank, size_t channel);

// The windows of `size` along the image dims of input 0, or none along a dim that
// cannot be cut: where not every window is within the padded input and over some row
// of it, or the output is longer than the input. Dims 0 and 1 have none.
std::vector<std::optional<Window>> image_windows(const OperatorView& op, const WindowSizes& sizes);

// `axis` counted from the front; none when it is out of range.
std::optional<size_t> axis_index(int64_t axis, size_t rank);
// The same for several axes; none when one is out of range or occurs twice.
std::optional<DimSet> axis_indices(const std::vector<int64_t>& axes, size_t rank);

// Whether the node has that many inputs and visible outputs.
inline bool has_operands(const OperatorView& op, size_t inputs, size_t outputs) {
  return op.inputs.size() == inputs && op.outputs.size() == outputs;
}

}  // namespace soybean

#endif  // SOYBEAN_RULES_RULE_BUILDER_H_
