#include "search/evaluation.h"

#include <algorithm>
#include <set>

#include "search/halo.h"
#include "search/kept.h"

namespace soybean {
namespace {

// Devices up to which the messages of every conversion are counted one by one.
constexpr int kCountedDevices = 64;

class Evaluator {
 public:
  Evaluator(const Space& space, const Plan& plan, const Pricing& pricing, KnownConversions* known)
      : space_(space), plan_(plan), pricing_(pricing), levelled_(space.mesh().by_level()),
        kept_(space.program()), known_(*known) {}

  Evaluation run() {
    const auto& nodes = space_.graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int node = static_cast<int>(i);
      if (!nodes[i].is_variable()) compute(node);
      for (size_t k = 0; k < nodes[i].outputs.size(); ++k) uses({node, static_cast<int>(k)});
    }
    out_.memory = device_memory(space_, plan_, kept_, pricing_.optimizer_states, kFullestDevice);
    return std::move(out_);
  }

 private:
  void compute(int node) {
    const Program& program = space_.program();
    const Rule& rule = program.rules[static_cast<size_t>(node)];
    const OperatorCuts& cuts = plan_.operators[static_cast<size_t>(node)];
    const Node& n = space_.graph().node(node);
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const Entry e{node, static_cast<int>(k)};
      const Tiling made = output_tiling(rule, k, cuts);
      if (!space_.uses(e).empty()) convert(e, made, plan_.tensors.at(e), -1, -1);
    }
    const Cost halo = halo_cost(program, space_.mesh(), node, cuts);
    const int ways = halo_ways(program, node);
    out_.halo_bytes += halo.bytes * ways;
    out_.forward_bytes += halo.bytes;
    out_.backward_bytes += halo.bytes * (ways - 1);
    out_.messages += halo.messages;
    if (pricing_.machine != nullptr) {
      out_.communication_seconds +=
          halo_seconds(program, space_.mesh(), *pricing_.machine, node, cuts, halo.bytes * ways);
      out_.compute_seconds += compute_seconds(program, space_.mesh(), *pricing_.machine, node, cuts);
    }
    for (const Statistics& s : rule.statistics) {
      const Tiling from = statistics_made(rule, s, cuts);
      if (!from.has(kPartial)) continue;
      const Tiling to = statistics_needed(rule, s, cuts);
      const TensorType type{s.shape, s.itemsize};
      const int ways = statistics_ways(program, node, s);
      const Cost joined = moved(type, from, to);
      out_.statistics_bytes += joined.bytes * ways;
      count(joined, ways);
      if (pricing_.machine != nullptr) out_.communication_seconds += seconds(type, from, to) * ways;
    }
  }

  void uses(Entry e) {
    std::set<std::pair<int, Tiling>> seen;  // an operator's inputs share a conversion
    const Tiling& rest = plan_.tensors.at(e);
    for (const Use& use : space_.uses(e)) {
      if (use.node < 0) {
        convert(e, rest, plan_.results[use.input], -1, static_cast<int>(use.input));
        continue;
      }
      const size_t node = static_cast<size_t>(use.node);
      const Tiling need = input_tiling(space_.program().rules[node], use.input, plan_.operators[node]);
      if (seen.emplace(use.node, need).second) convert(e, rest, need, use.node, -1);
    }
  }

  void convert(Entry e, const Tiling& from, const Tiling& to, int user, int result) {
    if (from == to) return;
    const TensorType& type = space_.graph().type(e);
    PlannedConversion c{e, from, to, user, result, moved(type, from, to), 1, 0};
    if (space_.program().requires_grad(e)) c.ways = 2;
    if (pricing_.machine != nullptr) c.seconds = seconds(type, from, to) * c.ways;
    count(c.forward, c.ways);
    out_.communication_seconds += c.seconds;
    out_.conversions.push_back(std::move(c));
  }

  void count(const Cost& forward, int ways) {
    out_.forward_bytes += forward.bytes;
    out_.backward_bytes += forward.bytes * (ways - 1);
    out_.messages += forward.messages;
  }

  // One way, on the machine's links.
  double seconds(const TensorType& type, const Tiling& from, const Tiling& to) const {
    const size_t rank = type.shape.size();
    const Cost time = conversion_time(levelled_, type, Counts(levelled_, from, rank), Counts(levelled_, to, rank),
                                      pricing_.machine->links);
    return static_cast<double>(time.bytes) * 1e-12;
  }

  Cost moved(const TensorType& type, const Tiling& from, const Tiling& to) {
    const auto key = std::make_pair(std::make_pair(type.shape, type.itemsize), std::make_pair(from, to));
    const auto [it, fresh] = known_.emplace(key, Cost{});
    if (!fresh) return it->second;
    const Mesh& mesh = space_.mesh();
    const size_t rank = type.shape.size();
    // On very many devices, where the bound says the same, without a look at each.
    const bool at_bound = mesh.devices() > kCountedDevices && is_at_bound(mesh, type.shape, from, to);
    it->second = at_bound ? conversion_bound(mesh, type, Counts(mesh, from, rank), Counts(mesh, to, rank))
                          : conversion(mesh, type, from, to).cost;
    return it->second;
  }

  const Space& space_;
  const Plan& plan_;
  const Pricing& pricing_;
  const Mesh levelled_;  // time depends on the levels, also where bytes do not
  const KeptTensors kept_;
  Evaluation out_;
  KnownConversions& known_;
};

}  // namespace

Evaluation evaluate(const Space& space, const Plan& plan, const Pricing& pricing, KnownConversions* known) {
  return Evaluator(space, plan, pricing, known).run();
}

}  // namespace soybean
