#include "rules/rule_builder.h"

#include <algorithm>
#include <utility>

namespace soybean {

int RuleBuilder::factor(const std::string& name, int64_t size) {
  Factor factor;
  factor.name = name;
  factor.size = size;
  rule_.factors.push_back(factor);
  return static_cast<int>(rule_.factors.size()) - 1;
}

int RuleBuilder::reduced_factor(const std::string& name, int64_t size) {
  const int index = factor(name, size);
  rule_.factors.back().reduced = true;
  return index;
}

int RuleBuilder::same_factor(const std::string& name, int64_t size) {
  const int index = factor(name, size);
  rule_.factors.back().same = true;
  return index;
}

RuleBuilder& RuleBuilder::takes_statistic(int factor) {
  rule_.factors[static_cast<size_t>(factor)].statistic = true;
  return *this;
}

RuleBuilder& RuleBuilder::statistics(const Shape& shape, Dims dims, int itemsize, bool gradient) {
  rule_.statistics.push_back({shape, std::move(dims), itemsize, gradient});
  return *this;
}

RuleBuilder& RuleBuilder::joined_by(const std::string& op) {
  rule_.joined_by = op;
  return *this;
}

Dims RuleBuilder::dim_factors(const Shape& shape, const DimSet& whole) {
  Dims dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string name = d == 0 ? "n" : "d" + std::to_string(d);
    dims.push_back(whole.count(d) > 0 ? kWhole : factor(name, shape[d]));
  }
  return dims;
}

Dims RuleBuilder::image_factors(const Shape& shape, size_t channel, const DimSet& whole) {
  const std::vector<std::string> names = image_dim_names(shape.size(), channel);
  Dims dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.push_back(whole.count(d) > 0 ? kWhole : factor(names[d], shape[d]));
  }
  return dims;
}

RuleBuilder& RuleBuilder::input(Dims dims) {
  rule_.inputs.push_back({std::move(dims), false, false});
  return *this;
}

RuleBuilder& RuleBuilder::addend(Dims dims) {
  rule_.inputs.push_back({std::move(dims), true, false});
  return *this;
}

RuleBuilder& RuleBuilder::output(Dims dims) {
  rule_.outputs.push_back({std::move(dims), false, false});
  return *this;
}

RuleBuilder& RuleBuilder::alike_output(Dims dims) {
  alike_outputs_.insert(rule_.outputs.size());
  return output(std::move(dims));
}

RuleBuilder& RuleBuilder::merged_input(size_t index) {
  rule_.inputs[index].merged = true;
  return *this;
}

RuleBuilder& RuleBuilder::merged_output(size_t index) {
  rule_.outputs[index].merged = true;
  return *this;
}

RuleBuilder& RuleBuilder::window(const Window& window) {
  rule_.windows.push_back(window);
  rule_.factors[static_cast<size_t>(window.factor)].spatial = true;
  return *this;
}

RuleBuilder& RuleBuilder::extent_attr(const std::string& name, int factor, int64_t block) {
  rule_.extent_attrs[name] = {factor, block};
  return *this;
}

RuleBuilder& RuleBuilder::start_attr(const std::string& name, int factor, double first, double step) {
  rule_.start_attrs[name] = {factor, first, step, false};
  return *this;
}

RuleBuilder& RuleBuilder::stop_attr(const std::string& name, int factor, double first, double step) {
  rule_.start_attrs[name] = {factor, first, step, true};
  return *this;
}

RuleBuilder& RuleBuilder::index_into(size_t input, int factor) {
  rule_.indices.push_back({input, factor});
  return *this;
}

RuleBuilder& RuleBuilder::shape_attr(const std::string& name, int output, size_t begin,
                                     size_t behind) {
  rule_.shape_attrs[name] = {output, begin, behind};
  return *this;
}

RuleBuilder& RuleBuilder::runs_as(const std::string& op) {
  rule_.runs_as = op;
  return *this;
}

RuleBuilder& RuleBuilder::own_operand(const std::string& op, int factor, int itemsize) {
  rule_.own_operands.push_back({op, itemsize == 8 ? "float64" : "float32", itemsize, factor});
  return *this;
}

RuleBuilder& RuleBuilder::restate(const std::string& name, const std::string& value) {
  rule_.restated[name] = value;
  return *this;
}

RuleBuilder& RuleBuilder::without_addends(const std::string& name, const std::string& value) {
  rule_.without_addends[name] = value;
  return *this;
}

RuleBuilder& RuleBuilder::runs_without_addends_as(const std::string& op) {
  rule_.runs_without_addends_as = op;
  return *this;
}

RuleBuilder& RuleBuilder::zero_addends() {
  rule_.zero_addends = true;
  return *this;
}

RuleBuilder& RuleBuilder::average() {
  rule_.average = true;
  return *this;
}

RuleBuilder& RuleBuilder::random() {
  rule_.random = true;
  return *this;
}

Rule RuleBuilder::build() {
  if (!operands_fit() || !names_are_unique() || !outputs_agree()) return Rule();
  mark_batch();
  rule_.known = true;
  return rule_;
}

bool RuleBuilder::operands_fit() {
  if (rule_.inputs.size() != op_.inputs.size()) return false;
  if (rule_.outputs.size() != op_.outputs.size()) return false;
  std::vector<DimSet> windowed(rule_.inputs.size());
  for (const Window& w : rule_.windows) {
    if (!window_fits(w) || !windowed[w.input].insert(w.dim).second) return false;
  }
  for (size_t i = 0; i < rule_.inputs.size(); ++i) {
    if (!operand_fits(rule_.inputs[i], op_.inputs[i].shape, windowed[i])) return false;
  }
  for (size_t i = 0; i < rule_.outputs.size(); ++i) {
    if (!operand_fits(rule_.outputs[i], op_.outputs[i].shape, {})) return false;
  }
  return true;
}

bool RuleBuilder::window_fits(const Window& w) const {
  if (w.input >= rule_.inputs.size() || w.dim >= op_.inputs[w.input].shape.size()) return false;
  const Dims& dims = rule_.inputs[w.input].dims;
  return w.dim < dims.size() && dims[w.dim] == w.factor &&
         op_.inputs[w.input].shape[w.dim] >= rule_.factors[static_cast<size_t>(w.factor)].size;
}

bool RuleBuilder::operand_fits(const TensorRule& operand, const Shape& shape,
                               const DimSet& windowed) {
  if (operand.dims.size() != shape.size()) return false;
  std::set<int> seen;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1) return false;
    const int index = operand.dims[d];
    if (index == kWhole) continue;
    Factor& factor = rule_.factors[static_cast<size_t>(index)];
    // A factor along two dims of one tensor would make the tiles diagonal blocks.
    if (!seen.insert(index).second) return false;
    if (windowed.count(d) > 0) continue;
    if (factor.size < 1 || shape[d] % factor.size != 0) return false;
    if (shape[d] != factor.size) factor.even = true;
  }
  return true;
}

bool RuleBuilder::names_are_unique() const {
  std::set<std::string> names = {"owner", "replicated"};  // the plan's own words
  for (const Factor& factor : rule_.factors) {
    if (!names.insert(factor.name).second) return false;
  }
  return true;
}

bool RuleBuilder::outputs_agree() const {
  for (size_t f = 0; f < rule_.factors.size(); ++f) {
    auto carries = [f](const TensorRule& operand) {
      return std::count(operand.dims.begin(), operand.dims.end(), static_cast<int>(f)) > 0;
    };
    const bool none_carries = std::none_of(rule_.outputs.begin(), rule_.outputs.end(), carries);
    const bool absent = rule_.factors[f].reduced || rule_.factors[f].same ||
                        (rule_.factors[f].statistic && none_carries);
    for (size_t i = 0; i < rule_.outputs.size(); ++i) {
      if (alike_outputs_.count(i) == 0 && carries(rule_.outputs[i]) == absent) return false;
    }
    if (absent && std::none_of(rule_.inputs.begin(), rule_.inputs.end(), carries)) return false;
  }
  return true;
}

// The sample dim is dim 0 of the first output; where that is reduced away (the
// mean of a loss) or of no account, it is dim 0 of the first input.
void RuleBuilder::mark_batch() {
  if (rule_.inputs.empty() || rule_.outputs.empty()) return;
  const Dims& in = rule_.inputs[0].dims;
  const Dims& out = rule_.outputs[0].dims;
  const int leading = out.empty() ? kWhole : out[0];
  if (!in.empty() && in[0] != kWhole && rule_.factors[static_cast<size_t>(in[0])].same) {
    rule_.factors[static_cast<size_t>(in[0])].batch = true;
  } else if (leading != kWhole) {
    if (std::count(in.begin(), in.end(), leading) > 0 && !rule_.factors[static_cast<size_t>(leading)].statistic) {
      rule_.factors[static_cast<size_t>(leading)].batch = true;
    }
  } else if (!in.empty() && in[0] != kWhole) {
    Factor& first = rule_.factors[static_cast<size_t>(in[0])];
    first.batch = first.reduced;
  }
}

std::vector<std::string> image_dim_names(size_t rank, size_t channel) {
  static const char* const kInnermostFirst[] = {"w", "h", "d"};
  std::vector<std::string> names(rank);
  size_t spatial = 0;
  for (size_t d = rank; d-- > 0;) {
    if (d == channel) {
      names[d] = "c";
    } else if (d == 0) {
      names[d] = "n";
    } else {
      names[d] = spatial < 3 ? kInnermostFirst[spatial] : "d" + std::to_string(d);
      ++spatial;
    }
  }
  return names;
}

namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;

// Item i of an attribute of windows; none when it is out of its bounds.
std::optional<int64_t> window_item(const std::vector<int64_t>& items, size_t i, int64_t fallback) {
  constexpr int64_t kMost = 1 << 20;  // far beyond any image, and safe to multiply
  if (items.empty()) return fallback;
  if (i >= items.size() || items[i] < fallback || items[i] > kMost) return std::nullopt;
  return items[i];
}

}  // namespace

std::vector<std::optional<Window>> image_windows(const OperatorView& op, const WindowSizes& sizes) {
  const Shape& in = op.inputs[0].shape;
  const Shape& out = op.outputs[0].shape;
  std::vector<std::optional<Window>> windows(in.size());
  for (size_t d = 2; d < in.size() && d < out.size(); ++d) {
    const auto kernel = window_item(sizes.kernel, d - 2, 1), stride = window_item(sizes.stride, d - 2, 1);
    const auto pad = window_item(sizes.pad, d - 2, 0), dilate = window_item(sizes.dilate, d - 2, 1);
    if (!kernel || !stride || !pad || !dilate) continue;
    Window w;
    w.dim = d;
    w.kernel = *kernel;
    w.stride = *stride;
    w.pad = *pad;
    w.dilate = *dilate;
    w.round_up = sizes.round_up;
    if (out[d] > in[d] || in[d] > kMostRows || in[d] + 2 * w.pad < w.reach()) continue;
    const bool over_some_row = w.pad < w.reach() && (out[d] - 1) * w.stride - w.pad < in[d];
    if (over_some_row && out[d] == w.output_extent(in[d])) windows[d] = w;
  }
  return windows;
}

std::optional<size_t> axis_index(int64_t axis, size_t rank) {
  const int64_t count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

std::optional<DimSet> axis_indices(const std::vector<int64_t>& axes, size_t rank) {
  DimSet dims;
  for (int64_t axis : axes) {
    const auto dim = axis_index(axis, rank);
    if (!dim || !dims.insert(*dim).second) return std::nullopt;
  }
  return dims;
}

}  // namespace soybean
