#include "search/kept.h"

#include "rules/kept.h"

namespace soybean {

KeptTensors::KeptTensors(const Program& program) {
  const auto& nodes = program.graph().nodes();
  for (const Entry& e : program.results()) read_.insert(e);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].is_variable() || !program.gradients[i]) continue;
    for (size_t k = 0; k < nodes[i].inputs.size(); ++k) {
      if (backward_reads_input(nodes[i].op, k)) read_.insert(nodes[i].inputs[k]);
    }
    if (!backward_reads_outputs(nodes[i].op)) continue;
    for (size_t k = 0; k < nodes[i].outputs.size(); ++k) read_.insert({static_cast<int>(i), static_cast<int>(k)});
  }
  memory_ = read_;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Entry e{static_cast<int>(i), 0};
    if (nodes[i].is_variable() || !shares_memory(nodes[i].op) || memory_.erase(e) == 0) continue;
    memory_.insert(nodes[i].inputs[0]);
  }
}

}  // namespace soybean
