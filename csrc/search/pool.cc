#include "search/pool.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "rules/kept.h"
#include "search/memory.h"

namespace soybean {
namespace {

constexpr int64_t kMatchRange = 16;  // MXNet's NNVM_EXEC_MATCH_RANGE

// Blocks of memory that serve one tensor after the other. A block is counted by its
// users; none of a size of 0 is handed out.
class Pool {
 public:
  static constexpr int kNone = -1;

  int take(int64_t bytes) {
    if (bytes == 0) return kNone;
    auto found = free_.lower_bound(bytes);
    if (found == free_.end() || found->first > bytes * kMatchRange) {
      // A smaller one, which grows.
      if (found == free_.begin() || std::prev(found)->first < bytes / kMatchRange) return add(bytes);
      --found;
    }
    const int block = found->second;
    free_.erase(found);
    sizes_[static_cast<size_t>(block)] = std::max(sizes_[static_cast<size_t>(block)], bytes);
    users_[static_cast<size_t>(block)] = 1;
    return block;
  }

  void share(int block) {
    if (block != kNone) ++users_[static_cast<size_t>(block)];
  }

  void release(int block) {
    if (block == kNone || --users_[static_cast<size_t>(block)] > 0) return;
    free_.emplace(sizes_[static_cast<size_t>(block)], block);
  }

  bool is_shared(int block) const { return block != kNone && users_[static_cast<size_t>(block)] > 1; }

  int64_t bytes() const {
    int64_t total = 0;
    for (const int64_t size : sizes_) total += size;
    return total;
  }

 private:
  int add(int64_t bytes) {
    sizes_.push_back(bytes);
    users_.push_back(1);
    return static_cast<int>(sizes_.size()) - 1;
  }

  std::vector<int64_t> sizes_;
  std::vector<int> users_;
  std::multimap<int64_t, int> free_;
};

class Step {
 public:
  Step(const Space& space, const Plan& plan, const KeptTensors& kept, int device)
      : space_(space), plan_(plan), kept_(kept), device_(device), nodes_(space.graph().nodes()) {}

  int64_t run() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_variable()) forward(static_cast<int>(i));
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (!nodes_[i].is_variable() && gradient(static_cast<int>(i))) backward(static_cast<int>(i));
    }
    return pool_.bytes();
  }

 private:
  bool gradient(int node) const { return space_.program().gradients[static_cast<size_t>(node)]; }
  const Rule& rule(int node) const { return space_.program().rules[static_cast<size_t>(node)]; }
  const OperatorCuts& cuts(int node) const { return plan_.operators[static_cast<size_t>(node)]; }
  bool is_variable(Entry e) const { return nodes_[static_cast<size_t>(e.node)].is_variable(); }

  int64_t bytes(Entry e, const Tiling& tiling) const {
    return tile_bytes_on(space_.mesh(), space_.graph().type(e), tiling, device_);
  }

  void forward(int node) {
    const Node& n = nodes_[static_cast<size_t>(node)];
    std::vector<int> read;  // to be released once it has run
    int first = Pool::kNone;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Entry e = n.inputs[k];
      const Tiling need = input_tiling(rule(node), k, cuts(node));
      const bool at_rest = need == plan_.tensors.at(e);
      int block = at_rest ? (is_variable(e) ? Pool::kNone : tensors_.at(e)) : Pool::kNone;
      if (!at_rest) {
        block = pool_.take(bytes(e, need));
        if (kept_.is_read_backward(e)) {
          pool_.share(block);
          converted_[{node, k}] = block;
        }
      }
      // The user of a tensor at rest was counted when it was made.
      read.push_back(block);
      if (k == 0) first = block;
    }
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const Entry e{node, static_cast<int>(k)};
      const Tiling made = output_tiling(rule(node), k, cuts(node));
      const bool reshaped = shares_memory(n.op);
      int block = Pool::kNone;
      if (k == 0 && first != Pool::kNone && (reshaped || (runs_in_place(n.op) && !pool_.is_shared(first)))) {
        block = first;
        pool_.share(block);
      } else {
        block = pool_.take(bytes(e, made));
      }
      const auto rest = plan_.tensors.find(e);
      if (!space_.uses(e).empty() && !(rest->second == made)) {
        const int moved = pool_.take(bytes(e, rest->second));
        pool_.release(block);
        block = moved;
      }
      tensors_[e] = block;
      // Its users: operators, results, and the backward pass; the maker's own use ends here.
      for (size_t u = 0; u < space_.uses(e).size(); ++u) pool_.share(block);
      if (kept_.is_read_backward(e)) pool_.share(block);
      pool_.release(block);
    }
    for (const int block : read) pool_.release(block);
  }

  void backward(int node) {
    const Node& n = nodes_[static_cast<size_t>(node)];
    std::vector<int> outputs;  // the gradients of its outputs, as it takes them
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const Entry e{node, static_cast<int>(k)};
      const Tiling made = output_tiling(rule(node), k, cuts(node));
      const auto known = gradients_.find(e);
      int block = known == gradients_.end() ? Pool::kNone : known->second;
      const auto rest = plan_.tensors.find(e);
      if (block != Pool::kNone && !(rest->second == made)) {
        const int moved = pool_.take(bytes(e, made));
        pool_.release(block);
        block = moved;
      }
      outputs.push_back(block);
    }
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Entry e = n.inputs[k];
      if (!space_.program().requires_grad(e)) continue;
      const Tiling need = input_tiling(rule(node), k, cuts(node));
      const Tiling& rest = plan_.tensors.at(e);
      if (is_variable(e) && need == rest) continue;  // has its own place
      const bool handed_on = outputs[0] != Pool::kNone && !backward_reads_input(n.op, k) &&
                             bytes(e, need) == bytes({node, 0}, output_tiling(rule(node), 0, cuts(node)));
      int block = outputs[0];
      if (handed_on) {
        pool_.share(block);
      } else {
        block = pool_.take(bytes(e, need));
      }
      if (!(need == rest)) {
        const int moved = is_variable(e) ? Pool::kNone : pool_.take(bytes(e, rest));
        pool_.release(block);
        block = moved;
      }
      if (is_variable(e)) continue;
      const auto [sum, fresh] = gradients_.emplace(e, block);
      if (!fresh) pool_.release(block);  // added to the others
    }
    for (const int block : outputs) pool_.release(block);
    // What was kept for this operator.
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const auto copy = converted_.find({node, k});
      if (copy != converted_.end()) pool_.release(copy->second);
    }
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const Entry e{node, static_cast<int>(k)};
      // Operators that read it have all run backward before the one that made it.
      if (kept_.is_read_backward(e) && tensors_.count(e) > 0) pool_.release(tensors_[e]);
    }
  }

  const Space& space_;
  const Plan& plan_;
  const KeptTensors& kept_;
  const int device_;
  const std::vector<Node>& nodes_;
  Pool pool_;
  std::map<Entry, int> tensors_;                      // at rest
  std::map<std::pair<int, size_t>, int> converted_;  // kept copies, by operator and input
  std::map<Entry, int> gradients_;                    // of tensors at rest
};

}  // namespace

int64_t pooled_bytes(const Space& space, const Plan& plan, const KeptTensors& kept, int device) {
  return Step(space, plan, kept, device).run();
}

}  // namespace soybean
