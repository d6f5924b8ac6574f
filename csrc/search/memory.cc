#include "search/memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "search/pool.h"

namespace soybean {
namespace {

class Counter {
 public:
  Counter(const Space& space, const Plan& plan, const KeptTensors& kept, int optimizer_states, int device)
      : space_(space), plan_(plan), kept_(kept), optimizer_states_(optimizer_states), device_(device) {}

  Memory run() {
    const auto& nodes = space_.graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int node = static_cast<int>(i);
      if (nodes[i].is_variable()) {
        hold(node);
      } else {
        compute(node);
      }
      for (size_t k = 0; k < nodes[i].outputs.size(); ++k) uses({node, static_cast<int>(k)});
    }
    const int64_t pooled = pooled_bytes(space_, plan_, kept_, device_);
    out_.workspace = std::max<int64_t>(0, pooled - out_.activations - out_.conversions);
    return out_;
  }

 private:
  int64_t bytes(Entry e, const Tiling& tiling) const {
    return tile_bytes_on(space_.mesh(), space_.graph().type(e), tiling, device_);
  }

  void hold(int node) {
    const Node& n = space_.graph().node(node);
    const Entry e{node, 0};
    const int64_t held = bytes(e, plan_.tensors.at(e));
    (n.role == Role::kParameter ? out_.parameters : out_.inputs) += held;
    if (!n.requires_grad) return;
    out_.gradients += held;
    if (n.role == Role::kParameter) out_.optimizer += held * optimizer_states_;
  }

  void compute(int node) {
    const Rule& rule = space_.program().rules[static_cast<size_t>(node)];
    const OperatorCuts& cuts = plan_.operators[static_cast<size_t>(node)];
    const size_t outputs = space_.graph().node(node).outputs.size();
    for (size_t k = 0; k < outputs; ++k) {
      const Entry e{node, static_cast<int>(k)};
      const Tiling made = output_tiling(rule, k, cuts);
      if (kept_.has_kept_memory(e)) out_.activations += bytes(e, made);
      if (!space_.uses(e).empty()) convert(e, made, plan_.tensors.at(e));
    }
  }

  void uses(Entry e) {
    std::set<std::pair<int, Tiling>> seen;  // an operator's inputs share a conversion
    const Tiling& rest = plan_.tensors.at(e);
    for (const Use& use : space_.uses(e)) {
      if (use.node < 0) {
        convert(e, rest, plan_.results[use.input]);
        continue;
      }
      const size_t node = static_cast<size_t>(use.node);
      const Tiling need = input_tiling(space_.program().rules[node], use.input, plan_.operators[node]);
      if (seen.emplace(use.node, need).second) convert(e, rest, need);
    }
  }

  void convert(Entry e, const Tiling& from, const Tiling& to) {
    if (!(from == to) && kept_.is_read_backward(e)) out_.conversions += bytes(e, to);
  }

  const Space& space_;
  const Plan& plan_;
  const KeptTensors& kept_;
  const int optimizer_states_;
  const int device_;
  Memory out_;
};

}  // namespace

int64_t tile_bytes_on(const Mesh& mesh, const TensorType& type, const Tiling& tiling, int device) {
  if (!holds(mesh, tiling, device)) return 0;
  return device_region(mesh, tiling, type.shape, device).elements() * type.itemsize;
}

Memory device_memory(const Space& space, const Plan& plan, const KeptTensors& kept, int optimizer_states,
                     int device) {
  return Counter(space, plan, kept, optimizer_states, device).run();
}

}  // namespace soybean
