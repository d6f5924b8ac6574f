#include "search/prices.h"

#include <algorithm>
#include <cmath>

#include "search/halo.h"

namespace soybean {
namespace {

// Devices up to which conversions that are not aligned are priced piece by piece.
constexpr int kExactDevices = 64;

int64_t picoseconds(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e12)); }

}  // namespace

Prices::Prices(const Space& space, const Pricing& pricing) : space_(space), pricing_(pricing) {
  if (pricing.memory_weight > 0) kept_.emplace(space.program());
}

int Prices::number(const Tiling& tiling) {
  const auto [it, fresh] = numbers_.emplace(tiling, static_cast<int>(tilings_.size()));
  if (fresh) tilings_.push_back(&it->first);
  return it->second;
}

int Prices::kind(Entry e) {
  const auto known = kind_of_.find(e);
  if (known != kind_of_.end()) return known->second;
  const TensorType& type = space_.graph().type(e);
  const int ways = space_.program().requires_grad(e) ? 2 : 1;
  const bool kept = kept_ && kept_->is_read_backward(e);
  const auto [it, fresh] = kind_numbers_.emplace(
      std::make_tuple(type.shape, type.itemsize, ways, kept), static_cast<int>(kinds_.size()));
  if (fresh) kinds_.push_back({type, ways, kept});
  return kind_of_[e] = it->second;
}

const Counts& Prices::counts(int tiling, size_t rank) {
  const auto known = counts_.find({tiling, rank});
  if (known != counts_.end()) return known->second;
  return counts_.emplace(std::make_pair(tiling, rank), Counts(space_.mesh(), this->tiling(tiling), rank))
      .first->second;
}

Cost Prices::conversion(Entry e, int from, int to) {
  if (from == to) return {};
  const int k = kind(e);
  const uint64_t key = static_cast<uint64_t>(k) << 44 | static_cast<uint64_t>(from) << 22 | static_cast<uint64_t>(to);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_[key] = conversion_of(kinds_[static_cast<size_t>(k)], from, to);
}

Cost Prices::conversion_of(const Kind& kind, int from, int to) {
  const TensorType& type = kind.type;
  const size_t rank = type.shape.size();
  const Counts &a = counts(from, rank), &b = counts(to, rank);
  const Mesh& mesh = space_.mesh();
  Cost cost;
  if (pricing_.machine != nullptr) {
    cost = conversion_time(mesh, type, a, b, pricing_.machine->links) * kind.ways;
    // A conversion that the counts make nothing of may still move something.
    if (pricing_.exact && !is_aligned(tiling(from), tiling(to), rank)) cost.messages += byte_count(type);
  } else {
    cost = conversion_bound(mesh, type, a, b) * kind.ways;
    if (pricing_.exact && !is_at_bound(mesh, type.shape, tiling(from), tiling(to))) {
      if (mesh.devices() <= kExactDevices) {
        cost = soybean::conversion(mesh, type, tiling(from), tiling(to)).cost * kind.ways;
      } else if (!is_aligned(tiling(from), tiling(to), rank)) {
        cost.bytes += byte_count(type) * kind.ways;
      }
    }
  }
  if (kind.kept) {
    cost.bytes += std::llround(pricing_.memory_weight * static_cast<double>(tile_bytes(mesh, type, tiling(to))));
  }
  return cost;
}

Cost Prices::computation(int node, const OperatorCuts& cuts) {
  const Program& program = space_.program();
  const Mesh& mesh = space_.mesh();
  Cost cost = halo_cost(program, mesh, node, cuts) * halo_ways(program, node);
  if (pricing_.machine != nullptr) {
    const double halo = halo_seconds(program, mesh, *pricing_.machine, node, cuts, cost.bytes);
    cost.bytes = picoseconds(halo + compute_seconds(program, mesh, *pricing_.machine, node, cuts));
  }
  const Rule& rule = program.rules[static_cast<size_t>(node)];
  for (const Statistics& s : rule.statistics) {
    const Tiling made = statistics_made(rule, s, cuts);
    if (!made.has(kPartial)) continue;
    const int ways = statistics_ways(program, node, s);
    const Cost joined = conversion_of({{s.shape, s.itemsize}, ways, false}, number(made),
                                      number(statistics_needed(rule, s, cuts)));
    cost.bytes += joined.bytes;
    cost.messages += joined.messages;
  }
  if (kept_) {
    const std::vector<TensorType>& outputs = program.graph().node(node).outputs;
    int64_t bytes = 0;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!kept_->has_kept_memory({node, static_cast<int>(k)})) continue;
      bytes += tile_bytes(mesh, outputs[k], output_tiling(rule, k, cuts));
    }
    cost.bytes += std::llround(pricing_.memory_weight * static_cast<double>(bytes));
  }
  return cost;
}

Cost Prices::holding(Entry e, const Tiling& tiling) {
  // Feeding several copies moves nothing between devices, but is not free.
  const Mesh& mesh = space_.mesh();
  int64_t copies = 1;
  for (size_t i = 0; i < tiling.size(); ++i) {
    if (tiling[i] == kReplicated) copies *= mesh.parts(static_cast<int>(i));
  }
  Cost cost{0, copies};
  if (pricing_.memory_weight > 0) {
    const Node& node = space_.graph().node(e.node);
    int64_t times = 1 + (node.requires_grad ? 1 : 0);
    if (node.requires_grad && node.role == Role::kParameter) times += pricing_.optimizer_states;
    const int64_t bytes = tile_bytes(mesh, space_.graph().type(e), tiling) * times;
    cost.bytes = std::llround(pricing_.memory_weight * static_cast<double>(bytes));
  }
  return cost;
}

int64_t tile_bytes(const Mesh& mesh, const TensorType& type, const Tiling& tiling) {
  std::vector<int64_t> parts(type.shape.size(), 1);
  for (size_t i = 0; i < tiling.size(); ++i) {
    if (tiling[i] >= 0) parts[static_cast<size_t>(tiling[i])] *= mesh.parts(static_cast<int>(i));
  }
  int64_t bytes = type.itemsize;
  for (size_t d = 0; d < parts.size(); ++d) bytes *= (type.shape[d] + parts[d] - 1) / parts[d];
  return bytes;
}

double operations(const Program& program, int node, const std::vector<int64_t>& extents) {
  const Rule& rule = program.rules[static_cast<size_t>(node)];
  const Node& n = program.graph().node(node);
  double outputs = 0;
  for (const TensorType& type : n.outputs) outputs += static_cast<double>(element_count(type.shape));
  if (!rule.known) return outputs;
  // One operation for every combination of the factors' indices; a product and a sum
  // where a factor is summed over, for every place of a window that the rule keeps whole.
  double flops = 1, elements = 1;
  bool reduced = false;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    flops *= static_cast<double>(extents[f]);
    elements *= rule.factors[f].reduced ? 1 : static_cast<double>(rule.factors[f].size);
    reduced = reduced || rule.factors[f].reduced;
  }
  if (elements > 0) flops *= std::max(1.0, outputs / elements);  // dims that are no factors
  if (rule.inputs.size() > 1 && rule.inputs[1].dims.size() > 2) {
    const Shape& weight = program.graph().type(n.inputs[1]).shape;
    for (size_t d = 2; d < weight.size(); ++d) {
      if (rule.inputs[1].dims[d] == kWhole) flops *= static_cast<double>(weight[d]);
    }
  }
  return reduced ? 2 * flops : flops;
}

Work work(const Program& program, const Mesh& mesh, int node, const OperatorCuts& cuts) {
  const Rule& rule = program.rules[static_cast<size_t>(node)];
  const Node& n = program.graph().node(node);
  Work work;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    work.bytes += static_cast<double>(tile_bytes(mesh, program.graph().type(n.inputs[k]), input_tiling(rule, k, cuts)));
  }
  for (size_t k = 0; k < n.outputs.size(); ++k) {
    work.bytes += static_cast<double>(tile_bytes(mesh, n.outputs[k], output_tiling(rule, k, cuts)));
  }
  std::vector<int64_t> extents;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    int64_t parts = 1;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (cuts[i] == static_cast<int>(f)) parts *= mesh.parts(static_cast<int>(i));
    }
    extents.push_back((rule.factors[f].size + parts - 1) / parts);
  }
  work.flops = operations(program, node, extents);
  return work;
}

double halo_seconds(const Program& program, const Mesh& mesh, const Machine& machine, int node,
                    const OperatorCuts& cuts, int64_t bytes) {
  if (bytes == 0) return 0;
  const Rule& rule = program.rules[static_cast<size_t>(node)];
  const LinkLevel* slowest = nullptr;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] < 0 || !rule.factors[static_cast<size_t>(cuts[i])].spatial) continue;
    const LinkLevel& link = machine.links[static_cast<size_t>(mesh.level(static_cast<int>(i)))];
    if (slowest == nullptr || link.bandwidth < slowest->bandwidth) slowest = &link;
  }
  return slowest->latency + static_cast<double>(bytes) / mesh.devices() / slowest->bandwidth;
}

double compute_seconds(const Program& program, const Mesh& mesh, const Machine& machine, int node,
                       const OperatorCuts& cuts) {
  const Work w = work(program, mesh, node, cuts);
  const double once = std::max(w.flops / machine.flops, w.bytes / machine.memory_bandwidth);
  return once * (program.gradients[static_cast<size_t>(node)] ? 3 : 1);
}

}  // namespace soybean
