#include "lower/write_out.h"

#include <algorithm>
#include <utility>

#include "rules/written_out.h"

namespace soybean {
namespace {

bool takes_statistics(const Rule& rule, const OperatorCuts& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [&rule](int choice) {
    return choice >= 0 && rule.factors[static_cast<size_t>(choice)].statistic;
  });
}

class Pass {
 public:
  Pass(const Program& program, const Plan& plan) : program_(program), plan_(plan) {}

  Lowerable run() {
    const auto& nodes = program_.graph().nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const bool written = !nodes[i].is_variable() && takes_statistics(program_.rules[i], plan_.operators[i]);
      written ? write(static_cast<int>(i)) : copy(static_cast<int>(i));
    }
    std::vector<Entry> outputs;
    for (const Entry& e : program_.graph().outputs()) outputs.push_back(mapped(e));
    std::vector<Statistic> statistics;
    for (const Statistic& s : program_.expanded.statistics) {
      statistics.push_back({mapped(s.value), mapped({s.variable, 0}).node, s.momentum});
    }
    Plan plan = plan_;
    plan.operators = std::move(operators_);
    plan.tensors = std::move(tensors_);
    std::vector<bool> gradients = gradients_of(nodes_);
    return {{{Graph(std::move(nodes_), std::move(outputs)), std::move(statistics), program_.expanded.training},
             std::move(rules_), std::move(gradients)},
            std::move(plan)};
  }

 private:
  static std::vector<bool> gradients_of(const std::vector<Node>& nodes) {
    std::vector<bool> gradients;
    for (const Node& node : nodes) gradients.push_back(carries_gradient(node, gradients));
    return gradients;
  }

  Entry mapped(Entry e) const { return entries_[static_cast<size_t>(e.node)][static_cast<size_t>(e.index)]; }

  void copy(int index) {
    const size_t i = static_cast<size_t>(index);
    Node node = program_.graph().node(index);
    for (Entry& e : node.inputs) e = mapped(e);
    std::vector<Entry> outputs;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Entry e{static_cast<int>(nodes_.size()), static_cast<int>(k)};
      tensors_[e] = plan_.tensors.at({index, static_cast<int>(k)});
      outputs.push_back(e);
    }
    nodes_.push_back(std::move(node));
    rules_.push_back(program_.rules[i]);
    operators_.push_back(plan_.operators[i]);
    entries_.push_back(std::move(outputs));
  }

  void write(int index) {
    const Node& node = program_.graph().node(index);
    const Rule& rule = program_.rules[static_cast<size_t>(index)];
    const OperatorCuts& cuts = plan_.operators[static_cast<size_t>(index)];
    PrimitiveWriter writer(node.name, &nodes_);
    std::vector<Entry> inputs;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const Entry e = mapped(node.inputs[k]);
      const Tiling needed = input_tiling(rule, k, cuts);
      inputs.push_back(tensors_.at(e) == needed ? e : converted(e, needed, cuts, k, &writer));
    }
    const Entry out = write_out(node, inputs, &writer);
    while (rules_.size() < nodes_.size()) place(cuts);
    nodes_[static_cast<size_t>(out.node)].name = node.name;
    tensors_[out] = plan_.tensors.at({index, 0});
    entries_.push_back({out});
  }

  // An operand that rests as the operator needs it.
  Entry converted(Entry e, const Tiling& needed, const OperatorCuts& cuts, size_t input, PrimitiveWriter* writer) {
    const Entry copy = writer->by_element("_copy", "in" + std::to_string(input), {}, {e});
    rules_.push_back(rule_of(copy.node));
    operators_.push_back(followed(rules_.back(), {needed}, cuts));
    tensors_[copy] = needed;
    return copy;
  }

  // Cuts the first node that is not cut yet, a primitive.
  void place(const OperatorCuts& cuts) {
    const int index = static_cast<int>(rules_.size());
    Rule rule = rule_of(index);
    std::vector<Tiling> tilings;
    for (const Entry& e : nodes_[static_cast<size_t>(index)].inputs) tilings.push_back(tensors_.at(e));
    operators_.push_back(followed(rule, tilings, cuts));
    const Tiling made = output_tiling(rule, 0, operators_.back());
    std::vector<int> rest = made.choices();
    std::replace(rest.begin(), rest.end(), kPartial, kReplicated);
    tensors_[{index, 0}] = made.with_choices(rest);
    rules_.push_back(std::move(rule));
  }

  Rule rule_of(int index) const {
    const Node& node = nodes_[static_cast<size_t>(index)];
    std::vector<TensorType> inputs;
    for (const Entry& e : node.inputs) {
      inputs.push_back(nodes_[static_cast<size_t>(e.node)].outputs[static_cast<size_t>(e.index)]);
    }
    return rule_registry().at(node.op)({node, inputs, node.outputs, program_.expanded.training});
  }

  // How an operator is cut whose operands are tiled so: along what is split.
  static OperatorCuts followed(const Rule& rule, const std::vector<Tiling>& operands, const OperatorCuts& cuts) {
    std::vector<int> choices;
    for (size_t i = 0; i < cuts.size(); ++i) {
      int choice = cuts[i] == kOwner ? kOwner : kReplicated;
      for (size_t k = 0; k < operands.size() && choice == kReplicated; ++k) {
        if (operands[k][i] < 0) continue;
        choice = rule.known ? rule.inputs[k].dims[static_cast<size_t>(operands[k][i])] : kWhole;
        if (choice == kWhole) throw Error("internal error: a primitive operator cannot be cut as what it is part of");
      }
      choices.push_back(choice);
    }
    return OperatorCuts(choices, cuts.levels());
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  std::vector<OperatorCuts> operators_;
  std::map<Entry, Tiling> tensors_;
  std::vector<std::vector<Entry>> entries_;  // by node of the program: where its outputs are now
};

}  // namespace

Lowerable write_out(const Program& program, const Plan& plan) {
  check_plan(program, plan);
  return Pass(program, plan).run();
}

}  // namespace soybean
