#include "lower/lower.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "lower/buckets.h"
#include "lower/exchange.h"
#include "search/halo.h"
#include "search/prices.h"
#include "tiling/conversion.h"

namespace soybean {
namespace {

std::string scalar_text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.17g", value);
  return buffer;
}

class Lowering {
 public:
  Lowering(const Program& program, const Plan& plan)
      : program_(program), plan_(plan), mesh_(plan.mesh) {}

  ParallelGraph run() {
    find_uses();
    for (Bucket& bucket : find_buckets(program_, plan_)) {
      for (const int variable : bucket.variables) bucket_of_[variable] = buckets_.size();
      buckets_.push_back(std::move(bucket));
    }
    const auto& nodes = program_.graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].is_variable()) {
        lower_variable(static_cast<int>(i));
      } else {
        const size_t first = graph_.nodes.size();
        lower_operator(static_cast<int>(i));
        for (size_t n = first; n < graph_.nodes.size(); ++n) graph_.nodes[n].layer = static_cast<int>(i);
      }
    }
    lower_results();
    return with_dims_between_devices(with_local_sums(without_idle_copies(graph_)));
  }

 private:
  const Graph& serial() const { return program_.graph(); }

  void find_uses() {
    const auto& nodes = serial().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (size_t k = 0; k < nodes[i].inputs.size(); ++k) {
        const Entry e = nodes[i].inputs[k];
        used_.insert(e);
        const bool fixed = serial().node(e.node).is_variable() &&
                           takes_variable_only(serial(), static_cast<int>(i), k);
        if (fixed) fixed_.insert(e);
      }
    }
    for (const Entry& e : program_.results()) used_.insert(e);
  }

  std::string tile_name(const std::string& name, int device) const {
    return name + "@" + std::to_string(device);
  }

  Entry add(ParallelNode node) { return append(&graph_, std::move(node)); }

  // ---- variables and results -------------------------------------------------

  void lower_variable(int index) {
    const Node& node = serial().node(index);
    const Entry e{index, 0};
    if (at_rest_.count(e) > 0) return;  // for the sake of its bucket
    const Tiling& tiling = plan_.tensors.at(e);
    Tiles tiles(static_cast<size_t>(mesh_.devices()), kAbsent);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (!holds(mesh_, tiling, device)) continue;
      const Region region = device_region(mesh_, tiling, node.outputs[0].shape, device);
      ParallelNode tile;
      tile.op = "null";
      tile.name = plan_.whole_boundary ? node.name : tile_name(node.name, device);
      tile.device = device;
      tile.outputs = {{region.shape(), node.outputs[0].itemsize}};
      tile.requires_grad = program_.requires_grad(e);
      graph_.variables.push_back({tile.name, index, device, region});
      tiles[static_cast<size_t>(device)] = add(std::move(tile));
    }
    at_rest_[e] = std::move(tiles);
  }

  void lower_results() {
    const std::vector<Entry> results = program_.results();
    for (size_t r = 0; r < results.size(); ++r) {
      const Tiling& tiling = plan_.results[r];
      Written written;
      const Tiles tiles = converted(results[r], tiling, &written);
      for (int device = 0; device < mesh_.devices(); ++device) {
        if (!holds(mesh_, tiling, device)) continue;
        graph_.heads.push_back(tiles[static_cast<size_t>(device)]);
        graph_.outputs.push_back(
            {"", static_cast<int>(r), device,
             device_region(mesh_, tiling, serial().type(results[r]).shape, device)});
      }
    }
  }

  // ---- operators -------------------------------------------------------------

  Tiling needed(int index, size_t input) const {
    return input_tiling(program_.rules[static_cast<size_t>(index)], input,
                        plan_.operators[static_cast<size_t>(index)]);
  }

  Tiling made(Entry e) const {
    return output_tiling(program_.rules[static_cast<size_t>(e.node)], static_cast<size_t>(e.index),
                         plan_.operators[static_cast<size_t>(e.node)]);
  }

  void lower_operator(int index) {
    const Node& node = serial().node(index);
    const OperatorCuts& cuts = plan_.operators[static_cast<size_t>(index)];
    std::vector<Tiles> inputs;
    Written written;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      inputs.push_back(with_halo(index, k, converted(node.inputs[k], needed(index, k), &written)));
    }
    std::vector<Tiles> outputs(node.outputs.size(),
                               Tiles(static_cast<size_t>(mesh_.devices()), kAbsent));
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (!holds(mesh_, cuts, device)) continue;
      const Entry local = add(local_operator(index, device, inputs));
      for (size_t k = 0; k < outputs.size(); ++k) {
        const Entry out{local.node, static_cast<int>(k)};
        const Entry separate = separated(index, own_part(index, device, out));
        outputs[k][static_cast<size_t>(device)] =
            scaled_average(index, device, masked(index, device, inputs, separate));
      }
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Entry e{index, static_cast<int>(k)};
      if (used_.count(e) == 0) continue;
      at_rest_[e] = convert(e, std::move(outputs[k]), made(e), plan_.tensors.at(e));
    }
  }

  ParallelNode local_operator(int index, int device, const std::vector<Tiles>& inputs) {
    const Node& node = serial().node(index);
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    ParallelNode local;
    local.op = rule.runs_as.empty() ? node.op : rule.runs_as;
    local.name = tile_name(node.name, device);
    local.device = device;
    if (rule.runs_as.empty()) local.attrs = node.attrs;
    local.subgraphs = node.subgraphs;
    bool all_addends = true;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Entry tile = inputs[k][static_cast<size_t>(device)];
      if (tile == kAbsent) {
        all_addends = false;
        if (rule.zero_addends) local.inputs.push_back(add(zero_addend(index, k, device)));
      } else {
        local.inputs.push_back(merged(index, k, own_indices(index, k, device, differentiable(index, k, tile))));
      }
    }
    for (const OwnOperand& operand : rule.own_operands) {
      local.inputs.push_back(add(own_operand(index, device, operand, local.inputs.size())));
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      Shape shape = halos(index).made(k, device).shape();
      if (rule.known && rule.outputs[k].merged) shape = merged_shape(shape);
      local.outputs.push_back({shape, node.outputs[k].itemsize});
    }
    std::vector<int64_t> extents;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      extents.push_back(own_extent(index, static_cast<int>(f), device));
      local.reduces = local.reduces || rule.factors[f].reduced;
    }
    local.operations = operations(program_, index, extents);
    if (rule.known) restate_attributes(index, device, all_addends, &local);
    return local;
  }

  // What an operator is given for an input; apart from the gradient where it has none for it.
  Entry differentiable(int index, size_t input, Entry tile) {
    if (!node_of(graph_, tile).requires_grad || has_gradient(serial().node(index), input)) return tile;
    const std::string name = tile_name(serial().node(index).name, node_of(graph_, tile).device);
    return add_unary("BlockGrad", name + "~given" + std::to_string(input), {}, tile);
  }

  ParallelNode own_operand(int index, int device, const OwnOperand& operand, size_t input) const {
    ParallelNode node;
    node.op = operand.op;
    node.name = tile_name(serial().node(index).name, device) + "~own_operand" + std::to_string(input);
    node.device = device;
    node.outputs = {{{own_extent(index, operand.factor, device)}, operand.itemsize}};
    node.attrs = {{"shape", shape_text(node.outputs[0].shape)}, {"dtype", operand.dtype}};
    return node;
  }

  // What a group without an addend is given for it (Rule::zero_addends).
  ParallelNode zero_addend(int index, size_t input, int device) const {
    const TensorType& whole = serial().type(serial().node(index).inputs[input]);
    const std::vector<int>& dims = program_.rules[static_cast<size_t>(index)].inputs[input].dims;
    Shape shape = whole.shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (dims[d] != kWhole) shape[d] = own_extent(index, dims[d], device);
    }
    ParallelNode node;
    node.op = "_zeros";
    node.name = tile_name(serial().node(index).name, device) + "~no_addend" + std::to_string(input);
    node.device = device;
    node.outputs = {{shape, whole.itemsize}};
    node.attrs = {{"shape", shape_text(shape)}, {"dtype", float_name(whole.itemsize)}};
    return node;
  }

  Range own_range(int index, int factor, int device) const {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    return device_range(mesh_, plan_.operators[static_cast<size_t>(index)], factor,
                        rule.factors[static_cast<size_t>(factor)].size, device);
  }

  int64_t own_extent(int index, int factor, int device) const {
    return own_range(index, factor, device).length();
  }

  void restate_attributes(int index, int device, bool all_addends, ParallelNode* local) const {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    for (const auto& [key, value] : rule.restated) local->attrs[key] = value;
    for (const auto& [key, extent] : rule.extent_attrs) {
      local->attrs[key] = std::to_string(own_extent(index, extent.factor, device) * extent.block);
    }
    for (const auto& [key, start] : rule.start_attrs) {
      const Range range = own_range(index, start.factor, device);
      const double steps = static_cast<double>(start.at_end ? range.end : range.begin);
      local->attrs[key] = scalar_text(start.first + start.step * steps);
    }
    for (const auto& [key, part] : rule.shape_attrs) {
      const Shape& shape = local->outputs[static_cast<size_t>(part.output)].shape;
      const auto begin = shape.begin() + static_cast<std::ptrdiff_t>(part.begin);
      local->attrs[key] = shape_text(Shape(begin, shape.end() - static_cast<std::ptrdiff_t>(part.behind)));
    }
    if (!all_addends) {
      if (!rule.runs_without_addends_as.empty()) {
        local->op = rule.runs_without_addends_as;
        local->attrs.clear();
      }
      for (const auto& [key, value] : rule.without_addends) local->attrs[key] = value;
    }
  }

  Halos halos(int index) const {
    return Halos(program_, mesh_, index, plan_.operators[static_cast<size_t>(index)]);
  }

  // The tiles of an input with the rows of neighbours that windows reach.
  Tiles with_halo(int index, size_t input, const Tiles& tiles) {
    const Halos halo = halos(index);
    if (!halo.has(input)) return tiles;
    const Entry e = serial().node(index).inputs[input];
    const Tiling tiling = needed(index, input);
    std::vector<Region> wanted;
    for (int device = 0; device < mesh_.devices(); ++device) wanted.push_back(halo.needed(input, device));
    return exchange(mesh_, serial().type(e).shape, tiling, tiling, wanted, tiles,
                    exchange_name(e) + "~halo", "", &graph_);
  }

  // What an operator made without the rows that other groups make.
  Entry own_part(int index, int device, Entry out) {
    const size_t output = static_cast<size_t>(out.index);
    const Shape& shape = serial().node(index).outputs[output].shape;
    const Region own = device_region(mesh_, made({index, out.index}), shape, device);
    const std::string name = node_of(graph_, out).name + "~own" + std::to_string(out.index);
    return sliced(out, halos(index).made(output, device), own, name, &graph_);
  }

  // ---- indices into a factor (Rule::indices) ----------------------------------

  // A node of one input on the input's device.
  Entry add_unary(const std::string& op, const std::string& name, Attributes attrs, Entry input) {
    ParallelNode node;
    node.op = op;
    node.name = name;
    node.device = graph_.nodes[static_cast<size_t>(input.node)].device;
    node.attrs = std::move(attrs);
    node.inputs = {input};
    node.outputs = {type_of(graph_, input)};
    return add(std::move(node));
  }

  // Indices as whole numbers that hold every one of them: in float16 or int8 a
  // difference would be rounded or wrap around.
  Entry wide_indices(Entry tile, const std::string& name) {
    const Entry wide = add_unary("Cast", name + "~wide", {{"dtype", "int64"}}, tile);
    graph_.nodes[static_cast<size_t>(wide.node)].outputs[0].itemsize = 8;
    return wide;
  }

  bool is_own_whole(int index, int factor, int device) const {
    return own_extent(index, factor, device) ==
           program_.rules[static_cast<size_t>(index)].factors[static_cast<size_t>(factor)].size;
  }

  std::string index_name(int index, size_t input, int device) const {
    return tile_name(serial().node(index).name, device) + "~index" + std::to_string(input);
  }

  // Where input `input` holds indices into a cut factor: counted from the beginning
  // of the device's range.
  Entry own_indices(int index, size_t input, int device, Entry tile) {
    for (const IndexInto& into : program_.rules[static_cast<size_t>(index)].indices) {
      if (into.input != input || is_own_whole(index, into.factor, device)) continue;
      const std::string name = index_name(index, input, device);
      tile = wide_indices(tile, name);
      const int64_t begin = own_range(index, into.factor, device).begin;
      if (begin == 0) return tile;
      return add_unary("_minus_scalar", name, {{"scalar", std::to_string(begin)}}, tile);
    }
    return tile;
  }

  // Output `out` of a device's operator with 0 where the index is another group's.
  // With a tensor of zeros: MXNet 1.9.1 has where with a number, but not its gradient.
  Entry masked(int index, int device, const std::vector<Tiles>& inputs, Entry out) {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    for (const IndexInto& into : rule.indices) {
      const Factor& factor = rule.factors[static_cast<size_t>(into.factor)];
      if (!factor.reduced || is_own_whole(index, into.factor, device)) continue;
      const Entry tile = inputs[into.input][static_cast<size_t>(device)];
      const Entry mask = own_mask(index, into, device, tile, out);
      const std::string name =
          graph_.nodes[static_cast<size_t>(out.node)].name + "~own" + std::to_string(out.index);
      const Entry zeros = add_unary("zeros_like", name + "~zeros", {}, out);
      ParallelNode node;
      node.op = "_npi_where";
      node.name = name;
      node.device = device;
      node.inputs = {mask, out, zeros};
      node.outputs = {type_of(graph_, out)};
      out = add(std::move(node));
    }
    return out;
  }

  // Which indices of a tile belong to the device, shaped to be broadcast to `out`.
  Entry own_mask(int index, const IndexInto& into, int device, Entry tile, Entry out) {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    const std::string name = index_name(index, into.input, device) + "~" + std::to_string(out.index);
    const Range own = own_range(index, into.factor, device);
    const Entry wide = wide_indices(tile, name);
    std::vector<Entry> bounds;  // those inside of the whole range only
    if (own.begin > 0) {
      bounds.push_back(add_unary("_greater_equal_scalar", name + "~from",
                                 {{"scalar", std::to_string(own.begin)}}, wide));
    }
    if (own.end < rule.factors[static_cast<size_t>(into.factor)].size) {
      bounds.push_back(
          add_unary("_lesser_scalar", name + "~until", {{"scalar", std::to_string(own.end)}}, wide));
    }
    Entry mask = bounds[0];
    if (bounds.size() > 1) {
      ParallelNode both;
      both.op = "elemwise_mul";
      both.name = name + "~both";
      both.device = device;
      both.inputs = bounds;
      both.outputs = {type_of(graph_, wide)};
      mask = add(std::move(both));
    }
    const std::vector<int>& index_dims = rule.inputs[into.input].dims;
    const std::vector<int>& out_dims = rule.outputs[static_cast<size_t>(out.index)].dims;
    Shape shape = type_of(graph_, out).shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool indexed = out_dims[d] != kWhole &&
                           std::count(index_dims.begin(), index_dims.end(), out_dims[d]) > 0;
      if (!indexed) shape[d] = 1;
    }
    if (shape == type_of(graph_, mask).shape) return mask;
    return reshaped(mask, shape, name + "~mask");
  }

  // ---- dims that MXNet's operator has merged (TensorRule::merged) --------------

  static Shape merged_shape(const Shape& shape) {
    Shape out(shape.begin() + 1, shape.end());
    out[0] *= shape[0];
    return out;
  }

  Entry reshaped(Entry tile, const Shape& shape, const std::string& name) {
    const Entry out = add_unary("Reshape", name, {{"shape", shape_text(shape)}}, tile);
    graph_.nodes[static_cast<size_t>(out.node)].outputs[0].shape = shape;
    return out;
  }

  // A tile of input `input` as the operator takes it.
  Entry merged(int index, size_t input, Entry tile) {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    if (!rule.known || !rule.inputs[input].merged) return tile;
    const int device = graph_.nodes[static_cast<size_t>(tile.node)].device;
    return reshaped(tile, merged_shape(type_of(graph_, tile).shape),
                    tile_name(serial().node(index).name, device) + "~merged" + std::to_string(input));
  }

  // What a device's operator gives, with all dims of the serial graph.
  Entry separated(int index, Entry out) {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    if (!rule.known || !rule.outputs[static_cast<size_t>(out.index)].merged) return out;
    const int device = graph_.nodes[static_cast<size_t>(out.node)].device;
    const Tiling tiling = made({index, out.index});
    const Region region = device_region(
        mesh_, tiling, serial().node(index).outputs[static_cast<size_t>(out.index)].shape, device);
    const std::string& name = graph_.nodes[static_cast<size_t>(out.node)].name;
    return reshaped(out, region.shape(), name + "~separate" + std::to_string(out.index));
  }

  // A group's average over its range, as its share of the whole average.
  Entry scaled_average(int index, int device, Entry out) {
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    if (!rule.average) return out;
    double share = 1;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (!rule.factors[f].reduced) continue;
      share *= static_cast<double>(own_extent(index, static_cast<int>(f), device)) /
               static_cast<double>(rule.factors[f].size);
    }
    if (share == 1) return out;
    ParallelNode node;
    node.op = "_mul_scalar";
    node.name = node_of(graph_, out).name + "~share" + std::to_string(out.index);
    node.device = device;
    node.attrs = {{"scalar", scalar_text(share)}};
    node.inputs = {out};
    node.outputs = {type_of(graph_, out)};
    return add(std::move(node));
  }

  // ---- conversions -----------------------------------------------------------

  // The conversions written for one operator, whose inputs share them. Other operators
  // convert on their own, as the search counts it.
  using Written = std::map<std::pair<Entry, Tiling>, Tiles>;

  // The tiles of `e` as a use needs them.
  Tiles converted(Entry e, const Tiling& to, Written* written) {
    if (fixed_.count(e) > 0 && plan_.tensors.at(e) != to) {
      throw Error("tensor '" + serial().tensor_name(e) +
                  "' goes into its operator as a variable and must rest as the operator needs it");
    }
    if (const auto bucket = bucket_of_.find(e.node); bucket != bucket_of_.end()) return unpacked(e, bucket->second);
    const auto [it, fresh] = written->emplace(std::make_pair(e, to), Tiles{});
    if (fresh) it->second = convert(e, at_rest_.at(e), plan_.tensors.at(e), to);
    return it->second;
  }

  Tiles convert(Entry e, Tiles tiles, const Tiling& tiling, const Tiling& to) {
    const std::string& joined_by = program_.rules[static_cast<size_t>(e.node)].joined_by;
    return convert(serial().type(e), serial().tensor_name(e), std::move(tiles), tiling, to, joined_by);
  }

  Tiles convert(const TensorType& type, const std::string& name, Tiles tiles, Tiling tiling, const Tiling& to,
                const std::string& joined_by = "") {
    for (const Tiling& next : stages(type, tiling, to)) {
      const std::vector<Region> wanted = device_regions(mesh_, next, type.shape);
      tiles = exchange(mesh_, type.shape, tiling, next, wanted, tiles, exchange_name(name), joined_by,
                       &graph_);
      tiling = next;
    }
    return tiles;
  }

  // ---- buckets (lower/buckets.h) ------------------------------------------------

  // The tiles of a member as its user needs them; the bucket is converted for the first.
  const Tiles& unpacked(Entry e, size_t number) {
    const auto found = unpacked_.find(e);
    if (found != unpacked_.end()) return found->second;
    const Bucket& bucket = buckets_[number];
    for (const int variable : bucket.variables) {
      lower_variable(variable);
      unpacked_[{variable, 0}].assign(static_cast<size_t>(mesh_.devices()), kAbsent);
    }
    const std::string name = serial().tensor_name(e) + "~bucket";
    Tiles tiles(static_cast<size_t>(mesh_.devices()), kAbsent);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (holds(mesh_, bucket.from, device)) tiles[static_cast<size_t>(device)] = packed(bucket, device, name);
    }
    tiles = convert(bucket.type, name, std::move(tiles), bucket.from, bucket.to);
    for (int device = 0; device < mesh_.devices(); ++device) {
      if (holds(mesh_, bucket.to, device)) unpack(bucket, device, tiles[static_cast<size_t>(device)]);
    }
    return unpacked_.at(e);
  }

  int64_t row_length(const Bucket& bucket, int variable) const {
    return serial().node(variable).outputs[0].shape[0] / bucket.rows;
  }

  // A device's tiles of the members as one tile of the bucket.
  Entry packed(const Bucket& bucket, int device, const std::string& name) {
    const Shape shape = device_region(mesh_, bucket.from, bucket.type.shape, device).shape();
    ParallelNode joined;
    joined.op = "_npi_concatenate";
    joined.name = tile_name(name, device);
    joined.device = device;
    joined.attrs = {{"axis", "1"}, {"num_args", std::to_string(bucket.variables.size())}};
    joined.outputs = {{shape, bucket.type.itemsize}};
    for (const int variable : bucket.variables) {
      const Entry tile = at_rest_.at({variable, 0})[static_cast<size_t>(device)];
      joined.inputs.push_back(reshaped(tile, {shape[0], row_length(bucket, variable)},
                                       node_of(graph_, tile).name + "~rows"));
    }
    return add(std::move(joined));
  }

  void unpack(const Bucket& bucket, int device, Entry tile) {
    const Shape shape = type_of(graph_, tile).shape;
    ParallelNode split;
    split.op = "_split_v2";
    split.name = node_of(graph_, tile).name + "~members";
    split.device = device;
    split.inputs = {tile};
    std::string begins;
    int64_t begin = 0;
    for (const int variable : bucket.variables) {
      begins += (begins.empty() ? "" : ", ") + std::to_string(begin);
      begin += row_length(bucket, variable);
      split.outputs.push_back({{shape[0], row_length(bucket, variable)}, bucket.type.itemsize});
    }
    split.attrs = {{"indices", "(" + begins + ")"}, {"axis", "1"}, {"squeeze_axis", "False"}, {"sections", "0"}};
    const Entry first = add(std::move(split));
    for (size_t m = 0; m < bucket.variables.size(); ++m) {
      const int variable = bucket.variables[m];
      const Shape whole = {shape[0] * row_length(bucket, variable)};
      unpacked_[{variable, 0}][static_cast<size_t>(device)] =
          reshaped({first.node, static_cast<int>(m)}, whole,
                   tile_name(serial().node(variable).name, device) + "~member");
    }
  }

  // Repeated layers convert tensors alike: each conversion is found once.
  const std::vector<Tiling>& stages(const TensorType& type, const Tiling& from, const Tiling& to) {
    auto key = std::make_tuple(type.shape, type.itemsize, from, to);
    auto found = stages_.find(key);
    if (found == stages_.end()) {
      found = stages_.emplace(std::move(key), conversion(mesh_, type, from, to).stages).first;
    }
    return found->second;
  }

  std::string exchange_name(Entry e) { return exchange_name(serial().tensor_name(e)); }
  std::string exchange_name(const std::string& name) { return name + "~" + std::to_string(exchanges_++); }

  const Program& program_;
  const Plan& plan_;
  const Mesh& mesh_;
  ParallelGraph graph_;
  std::set<Entry> used_;
  // Variables that must never be converted: an operator takes nothing but a
  // variable there (the moving statistics of a fused BatchNorm).
  std::set<Entry> fixed_;
  std::map<Entry, Tiles> at_rest_;
  std::vector<Bucket> buckets_;
  std::map<int, size_t> bucket_of_;  // by variable
  std::map<Entry, Tiles> unpacked_;
  std::map<std::tuple<Shape, int, Tiling, Tiling>, std::vector<Tiling>> stages_;
  int exchanges_ = 0;
};

Json region_json(const Region& region, Json json) {
  json.set("begin", json_array(region.begin));
  json.set("end", json_array(region.end));
  return json;
}

Json fills_json(const ParallelGraph& graph) {
  Json fills = Json::array();
  size_t head = graph.heads.size() - graph.fills.size();
  for (const int index : graph.fills) {
    const ParallelNode& node = graph.nodes[static_cast<size_t>(index)];
    Json json = Json::object();
    json.set("name", Json(node.name));
    json.set("device", Json(node.device));
    json.set("shape", json_array(node.outputs[0].shape));
    json.set("itemsize", Json(node.outputs[0].itemsize));
    json.set("requires_grad", Json(node.requires_grad));
    json.set("head", Json(static_cast<int>(head++)));
    fills.push(std::move(json));
  }
  return fills;
}

}  // namespace

ParallelGraph lower(const Program& program, const Plan& plan) {
  check_plan(program, plan);
  return Lowering(program, plan).run();
}

Json lowered_json(const Program& program, const ParallelGraph& graph, const Schedule& schedule) {
  Json variables = Json::array(), outputs = Json::array(), statistics = Json::array();
  for (const Tile& tile : graph.variables) {
    Json json = Json::object();
    json.set("name", Json(tile.name));
    json.set("source", Json(program.graph().node(tile.source).name));
    json.set("device", Json(tile.device));
    variables.push(region_json(tile.region, std::move(json)));
  }
  const size_t serial_outputs = program.graph().outputs().size();
  for (size_t h = 0; h < graph.outputs.size(); ++h) {
    const Tile& tile = graph.outputs[h];
    Json json = Json::object();
    const size_t result = static_cast<size_t>(tile.source);
    if (result < serial_outputs) {
      json.set("index", Json(tile.source));
      json.set("device", Json(tile.device));
      outputs.push(region_json(tile.region, std::move(json)));
      continue;
    }
    const Statistic& s = program.expanded.statistics[result - serial_outputs];
    json.set("head", Json(static_cast<int>(h)));
    json.set("source", Json(program.graph().node(s.variable).name));
    json.set("device", Json(tile.device));
    json.set("momentum", Json(s.momentum));
    statistics.push(region_json(tile.region, std::move(json)));
  }
  const Traffic t = traffic(graph);
  Json out = Json::object();
  out.set("symbol", Json(symbol_json(ordered(graph, schedule.order))));
  out.set("variables", std::move(variables));
  out.set("outputs", std::move(outputs));
  out.set("statistics", std::move(statistics));
  out.set("bytes", bytes_json(t));
  out.set("messages", Json(t.messages));
  out.set("schedule", schedule_json(schedule));
  if (!graph.fills.empty()) out.set("fills", fills_json(graph));
  return out;
}

}  // namespace soybean
