#include "lower/local_fills.h"

#include <string>

namespace soybean {
namespace {

class LocalFills {
 public:
  explicit LocalFills(const ParallelGraph& graph) : old_(graph) {}

  ParallelGraph run() {
    for (const ParallelNode& old : old_.nodes) {
      ParallelNode node = old;
      for (Entry& e : node.inputs) {
        const Entry source = moved(e);
        e = node_of(new_, source).device == node.device ? source : filled(source, node.device);
      }
      position_.push_back(static_cast<int>(new_.nodes.size()));
      new_.nodes.push_back(std::move(node));
    }
    new_.variables = old_.variables;
    new_.outputs = old_.outputs;
    for (const Entry& e : old_.heads) new_.heads.push_back(moved(e));
    new_.heads.insert(new_.heads.end(), sent_.begin(), sent_.end());
    return std::move(new_);
  }

 private:
  Entry moved(Entry e) const { return {position_[static_cast<size_t>(e.node)], e.index}; }

  // In the place of `source` on another device. The variable goes through an
  // identity, as MXNet places the gradient of a variable where its user's is; that
  // copy is the work that the transfer would have been.
  Entry filled(Entry source, int device) {
    ParallelNode fill;
    fill.op = "null";
    fill.name = "fill" + std::to_string(sent_.size()) + "@" + std::to_string(device);
    fill.device = device;
    fill.outputs = {type_of(new_, source)};
    fill.requires_grad = node_of(new_, source).requires_grad;
    ParallelNode copy = fill;
    copy.op = "_copy";
    copy.name += "~copy";
    copy.inputs = {append(&new_, std::move(fill))};
    new_.fills.push_back(copy.inputs[0].node);
    sent_.push_back(kept(source));
    return append(&new_, std::move(copy));
  }

  // `source` as a head. One with a gradient is a loss, whose gradient MXNet fills
  // with ones on the spot; that of an ordinary head would be copied in twice.
  Entry kept(Entry source) {
    if (!node_of(new_, source).requires_grad) return source;
    ParallelNode loss;
    loss.op = "make_loss";
    loss.name = "fill" + std::to_string(sent_.size()) + "~sent";
    loss.device = node_of(new_, source).device;
    loss.inputs = {source};
    loss.outputs = {type_of(new_, source)};
    return append(&new_, std::move(loss));
  }

  const ParallelGraph& old_;
  ParallelGraph new_;
  std::vector<Entry> sent_;    // what would cross, by fill
  std::vector<int> position_;  // of an old node in the new graph
};

}  // namespace

ParallelGraph with_local_fills(const ParallelGraph& graph) { return LocalFills(graph).run(); }

}  // namespace soybean
