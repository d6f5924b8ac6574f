#include "lower/schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>

#include "rules/kept.h"
#include "rules/rule.h"

namespace soybean {
namespace {

// What the engine needs to start an operator, in seconds: it takes the place of a
// latency where operands are small.
constexpr double kStartSeconds = 1e-5;

// What an order must save of a step's time to take the place of the serial one: less is
// below what the model can tell, and the serial order holds least memory at a time.
constexpr double kWorthwhile = 1e-3;

constexpr int kNone = -1;

// Whether an operator of MXNet 1.9.1 asks for temporary space, of which its device has one for
// all: such operators run in the order in which they are handed over. Most do, if only for
// sparse arrays or oneDNN; these do not (found by handing over each behind one that waits).
bool takes_turn(const std::string& op) {
  static const std::set<std::string> free = {
      "Activation", "BlockGrad", "Cast", "Dropout", "LRN", "LeakyReLU", "Pad", "Pooling",
      "SoftmaxOutput", "SwapAxis", "UpSampling", "_np_reshape", "_npi_concatenate",
      "_npi_where", "abs", "broadcast_add", "broadcast_div", "broadcast_maximum",
      "broadcast_mul", "broadcast_sub", "clip", "elemwise_div", "erf", "exp", "floor", "log",
      "log_softmax", "negative", "ones_like", "pick", "relu", "rsqrt", "sigmoid", "sign",
      "slice_axis", "softmax", "softsign", "sqrt", "square", "stack", "tanh", "transpose",
      "where", "zeros_like"};
  return free.count(op) == 0;
}

enum class Kind { kForward, kBackward, kSum, kCopy };

// Something that a task leaves in memory: which of its outputs.
struct Made {
  int task = -1;
  int output = -1;  // -1: nothing, it is only waited for
};

struct Task {
  Kind kind;
  int device;       // of a copy, the one that sends
  int to = kNone;   // of a copy, the one that receives
  double seconds = 0;
  bool forward = false;
  bool in_turn = false;    // not before the task of this kind that was handed over before
  bool reduction = false;  // backward: on the way from a layer to gradients of variables alone
  int node = kNone;        // of the graph
  std::vector<int> inputs{}, users{};  // tasks
  double operations = 0, traffic = 0;  // of a device: floating-point operations, and bytes of its memory
  int64_t sent = 0;                    // of a copy, bytes
  std::vector<int> read{};       // which output of each input it reads; -1: none, it waits for it
  std::vector<Made> kept{};      // what it reads of the forward pass besides
  std::vector<int64_t> made{};   // the bytes of each of its outputs; 0 where they have a place of their own
  Made over{};                   // what its outputs may take the place of where they are as large,
  bool same = false;             // or are, under another shape

  void wait_for(Made input) {
    inputs.push_back(input.task);
    read.push_back(input.output);
  }
};

// Where the gradient of one output of a node comes from.
struct Gradient {
  bool head = false;            // the caller gives one
  std::vector<Made> users;      // nodes whose backward tasks send one, and for which input, in the graph's order
  int sum = kNone;              // the task that adds them up, where there are several
};

size_t at(int i) { return static_cast<size_t>(i); }

// The tasks of one training step.
class Step {
 public:
  Step(const ParallelGraph& graph, const Hardware& hardware)
      : graph_(graph), topology_(hardware.topology), copy_engines_(hardware.copy_engines) {
    forward_.assign(graph.nodes.size(), kNone);
    backward_.assign(graph.nodes.size(), kNone);
    find_first_outputs();
    find_devices();
    find_feeds();
    add_forward();
    add_backward();
    for (size_t t = 0; t < tasks_.size(); ++t) {
      for (const int input : tasks_[t].inputs) tasks_[at(input)].users.push_back(static_cast<int>(t));
    }
  }

  const ParallelGraph& graph() const { return graph_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  const Task& task(int t) const { return tasks_[at(t)]; }
  int devices() const { return devices_; }
  // Whether a task runs among the operators of its device.
  bool on_device(const Task& task) const { return task.kind != Kind::kCopy || !copy_engines_; }
  int forward(int node) const { return forward_[at(node)]; }
  // The task that completes the gradient of a variable, or kNone.
  int gradient(int variable) const { return source(gradients_[first_output_[at(variable)]]); }
  // Whether a node depends on variables alone: it brings weights or inputs where they are used.
  bool is_feed(int node) const { return feed_[at(node)]; }

  // The tasks, operators only, in the order in which MXNet hands them over.
  std::vector<int> handed_over(const Order& order) const {
    std::vector<int> position(graph_.nodes.size(), kNone), out;
    for (size_t i = 0; i < order.nodes.size(); ++i) {
      position[at(order.nodes[i])] = static_cast<int>(i);
      out.push_back(forward(order.nodes[i]));
    }
    std::vector<bool> visited(tasks_.size(), false);
    for (const int variable : order.arguments) {
      const int root = graph_.nodes[at(variable)].requires_grad ? gradient(variable) : kNone;
      if (root != kNone) visit(root, position, &visited, &out);
    }
    return out;
  }

  // The longest chain of tasks from each task's start to the end of the step, in seconds.
  std::vector<double> remaining() const {
    std::vector<double> out(tasks_.size(), 0);
    std::vector<int> open(tasks_.size()), done;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      open[t] = static_cast<int>(tasks_[t].users.size());
      if (open[t] == 0) done.push_back(static_cast<int>(t));
    }
    while (!done.empty()) {
      const Task& task = this->task(done.back());
      double& own = out[at(done.back())];
      done.pop_back();
      for (const int user : task.users) own = std::max(own, out[at(user)]);
      own += task.seconds;
      for (const int input : task.inputs) {
        if (--open[at(input)] == 0) done.push_back(input);
      }
    }
    return out;
  }

 private:
  Gradient& gradient_of(Entry e) { return gradients_[first_output_[at(e.node)] + at(e.index)]; }
  const Gradient& gradient_of(Entry e) const { return gradients_[first_output_[at(e.node)] + at(e.index)]; }

  int source(const Gradient& g) const {
    if (g.sum != kNone) return g.sum;
    return g.users.empty() ? kNone : backward_[at(g.users[0].task)];
  }

  void find_first_outputs() {
    size_t outputs = 0;
    for (const ParallelNode& node : graph_.nodes) {
      first_output_.push_back(outputs);
      outputs += node.outputs.size();
    }
    gradients_.resize(outputs);
  }

  void find_devices() {
    for (const ParallelNode& node : graph_.nodes) devices_ = std::max(devices_, node.device + 1);
    if (devices_ > topology_.mesh.devices()) {
      throw Error("the topology has " + std::to_string(topology_.mesh.devices()) + " devices, but the plan uses " +
                  std::to_string(devices_));
    }
  }

  void find_feeds() {
    for (const ParallelNode& node : graph_.nodes) {
      bool feed = node.operations == 0;
      for (const Entry& e : node.inputs) feed = feed && feed_[at(e.node)];
      feed_.push_back(feed);
    }
  }

  int add(Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  // `entry`, made by task `from`, on another device: the task that brings it.
  int copied(Entry entry, Made from, int sender, int receiver) {
    const Mesh& mesh = topology_.mesh;
    int cut = 0;
    while (mesh.digit(sender, cut) == mesh.digit(receiver, cut)) ++cut;
    const LinkLevel& link = topology_.machine.links[at(mesh.level(cut))];
    Task task{Kind::kCopy, sender, receiver};
    task.node = entry.node;
    task.sent = byte_count(type_of(graph_, entry));
    task.made = {task.sent};
    task.seconds = link.latency + static_cast<double>(task.sent) / link.bandwidth;
    if (from.task != kNone) task.wait_for(from);
    return add(std::move(task));
  }

  // What an operator does, so many times.
  void set_work(Task* task, const ParallelNode& node, int times) const {
    double bytes = 0;
    for (const Entry& e : node.inputs) bytes += static_cast<double>(byte_count(type_of(graph_, e)));
    for (const TensorType& type : node.outputs) bytes += static_cast<double>(byte_count(type));
    set_work(task, times * node.operations, times * bytes);
  }

  void set_work(Task* task, double operations, double traffic) const {
    const Machine& machine = topology_.machine;
    task->operations = operations;
    task->traffic = traffic;
    task->seconds = kStartSeconds + std::max(operations / machine.flops, traffic / machine.memory_bandwidth);
  }

  void add_forward() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ParallelNode& node = graph_.nodes[i];
      if (node.is_variable()) continue;
      Task task{Kind::kForward, node.device};
      task.forward = true;
      set_work(&task, node, 1);
      task.in_turn = takes_turn(node.op);
      task.node = static_cast<int>(i);
      for (const TensorType& type : node.outputs) task.made.push_back(byte_count(type));
      for (const Entry& e : node.inputs) {
        const int sender = node_of(graph_, e).device;
        if (sender != node.device && copies_.count({e, node.device}) == 0) {
          const int copy = copied(e, {forward_[at(e.node)], e.index}, sender, node.device);
          tasks_[at(copy)].forward = true;
          copies_.emplace(std::make_pair(e, node.device), copy);
        }
        const Made input = taken(e, node.device);
        if (input.task != kNone) task.wait_for(input);
      }
      if (!node.inputs.empty() && (shares_memory(node.op) || runs_in_place(node.op))) {
        task.over = taken(node.inputs[0], node.device);
        task.same = shares_memory(node.op);
      }
      forward_[i] = add(std::move(task));
    }
  }

  // What an operator on a device takes for an entry; no task where it is a variable there.
  Made taken(Entry e, int device) const {
    const auto copy = copies_.find({e, device});
    return copy == copies_.end() ? Made{forward_[at(e.node)], e.index} : Made{copy->second, 0};
  }

  void add_backward() {
    for (const Entry& e : graph_.heads) gradient_of(e).head = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const ParallelNode& node = graph_.nodes[i];
      if (!node.requires_grad) continue;
      bool reached = false;
      std::vector<Made> inputs;
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const Entry e{static_cast<int>(i), static_cast<int>(k)};
        Gradient& g = gradient_of(e);
        reached = reached || g.head || !g.users.empty();
        std::reverse(g.users.begin(), g.users.end());
        const Made arrived = gathered(e, &g);
        if (arrived.task != kNone) inputs.push_back(arrived);
      }
      if (node.is_variable() || !reached) continue;
      backward_[i] = add(backward_task(static_cast<int>(i), inputs));
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const Entry e = node.inputs[k];
        if (node_of(graph_, e).requires_grad) gradient_of(e).users.push_back({static_cast<int>(i), static_cast<int>(k)});
      }
    }
  }

  Task backward_task(int i, const std::vector<Made>& inputs) const {
    const ParallelNode& node = graph_.nodes[at(i)];
    int operands = 0;
    for (const Entry& e : node.inputs) operands += node_of(graph_, e).requires_grad ? 1 : 0;
    Task task{Kind::kBackward, node.device};
    // A product's gradient is a product for each operand, a bias aside; what only passes
    // elements on passes as many back. That of a sum is its output's gradient itself.
    const int times = node.reduces ? std::min(operands, 2) : 1;
    const bool runs = node.op != "elemwise_add";
    if (runs) set_work(&task, node, times);
    // The gradient of a sum is its output's: there is nothing to run.
    task.in_turn = takes_turn(node.op) && runs;
    task.reduction = feed_[at(i)];
    task.node = i;
    for (const Made& input : inputs) task.wait_for(input);
    if (!inputs.empty()) task.over = inputs[0];
    task.same = !runs || shares_memory(node.op);
    task.wait_for({forward_[at(i)], -1});
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const Entry e = node.inputs[k];
      const ParallelNode& operand = node_of(graph_, e);
      const bool made = operand.requires_grad && !operand.is_variable();
      task.made.push_back(made ? byte_count(type_of(graph_, e)) : 0);
      if (!backward_reads_input(node.op, k)) continue;
      const Made value = taken(e, node.device);
      if (value.task != kNone) task.kept.push_back(value);
      if (!task.same) task.over = {};
    }
    if (backward_reads_outputs(node.op)) {
      for (size_t k = 0; k < node.outputs.size(); ++k) task.kept.push_back({forward_[at(i)], static_cast<int>(k)});
    }
    return task;
  }

  // The task after which all gradient of an entry is on its device; kNone where it is the
  // caller's.
  Made gathered(Entry e, Gradient* g) {
    const ParallelNode& node = node_of(graph_, e);
    std::vector<Made> terms;
    for (const Made& user : g->users) {
      const Made made{backward_[at(user.task)], user.output};
      const int sender = graph_.nodes[at(user.task)].device;
      terms.push_back(sender == node.device ? made : Made{copied(e, made, sender, node.device), 0});
      if (sender != node.device) tasks_.back().reduction = feed_[at(e.node)];
    }
    if (terms.size() + (g->head ? 1 : 0) < 2) {
      if (terms.empty()) return {};
      // Of a variable on another device, the copy is what completes it.
      if (node.is_variable() && terms[0].task != backward_[at(g->users[0].task)]) g->sum = terms[0].task;
      return terms[0];
    }
    Task sum{Kind::kSum, node.device};
    sum.in_turn = true;
    const int64_t bytes = byte_count(type_of(graph_, e));
    set_work(&sum, 0, static_cast<double>(bytes) * static_cast<double>(terms.size() + 1));
    sum.reduction = feed_[at(e.node)];
    sum.node = e.node;
    sum.made = {node.is_variable() ? 0 : bytes};
    sum.over = terms[0];
    for (const Made& term : terms) sum.wait_for(term);
    g->sum = add(std::move(sum));
    return {g->sum, 0};
  }

  // What a backward task takes from others, as MXNet writes it: the gradients of the outputs
  // in order; those of a sum from the last user to the first.
  std::vector<int> operands(int t, const std::vector<int>& position) const {
    const Task& task = this->task(t);
    std::vector<int> out;
    if (task.kind == Kind::kCopy) return task.inputs;
    const ParallelNode& node = graph_.nodes[at(task.node)];
    if (task.kind == Kind::kBackward) {
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        const int from = source(gradient_of({task.node, static_cast<int>(k)}));
        if (from != kNone) out.push_back(from);
      }
      return out;
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Gradient& g = gradient_of({task.node, static_cast<int>(k)});
      if (g.sum != t) continue;
      std::vector<Made> users = g.users;
      std::stable_sort(users.begin(), users.end(), [&](const Made& a, const Made& b) {
        return position[at(a.task)] > position[at(b.task)];
      });
      for (const Made& user : users) out.push_back(backward_[at(user.task)]);
    }
    return out;
  }

  void visit(int root, const std::vector<int>& position, std::vector<bool>* visited, std::vector<int>* out) const {
    struct Frame {
      int task;
      std::vector<int> operands;
      size_t next;
    };
    std::vector<Frame> stack;
    const auto enter = [&](int t) {
      if ((*visited)[at(t)]) return;
      (*visited)[at(t)] = true;
      stack.push_back({t, operands(t, position), 0});
    };
    enter(root);
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.operands.size()) {
        enter(top.operands[top.next++]);
        continue;
      }
      if (task(top.task).kind != Kind::kCopy) out->push_back(top.task);
      stack.pop_back();
    }
  }

  const ParallelGraph& graph_;
  const Topology& topology_;
  const bool copy_engines_;
  int devices_ = 1;
  std::vector<Task> tasks_;
  std::vector<int> forward_, backward_;  // the tasks of a node
  std::vector<size_t> first_output_;     // of a node, in gradients_
  std::vector<Gradient> gradients_;
  std::map<std::pair<Entry, int>, int> copies_;  // forward: the task that brings an entry to a device
  std::vector<bool> feed_;
};

// Plays a step, event by event.
class Player {
 public:
  // Which of the tasks that wait for a device it runs first: the one with the least key.
  using Key = std::tuple<double, double, int>;

  explicit Player(const Step& step)
      : step_(step), waiting_(at(step.devices())), busy_(at(step.devices()), false),
        sends_(at(step.devices()), 0), receives_(at(step.devices()), 0), begin_(step.tasks().size(), 0),
        finish_(step.tasks().size(), 0) {
    for (const Task& task : step.tasks()) open_.push_back(static_cast<int>(task.inputs.size()));
    worked_.resize(at(step.devices()), 0);
  }
  virtual ~Player() = default;

  Simulation play() {
    for (size_t t = 0; t < open_.size(); ++t) {
      if (open_[t] == 0) arrive(static_cast<int>(t), 0);
    }
    start_all(0);
    while (!ends_.empty()) {
      const double now = ends_.top().first;
      // All that ends now, before anything new starts: what comes first is decided by key.
      while (!ends_.empty() && ends_.top().first == now) {
        const int t = ends_.top().second;
        ends_.pop();
        end(t, now);
      }
      start_all(now);
    }
    Simulation out;
    for (const double finish : finish_) out.seconds = std::max(out.seconds, finish);
    for (const double worked : worked_) out.idle.push_back(std::max(0.0, out.seconds - worked));
    return out;
  }

  const std::vector<int>& started() const { return started_; }  // what devices run, in order
  double begin(int t) const { return begin_[at(t)]; }
  double finish(int t) const { return finish_[at(t)]; }

 protected:
  virtual Key key(int t, double ready) const = 0;

  const Step& step() const { return step_; }
  // A task waits for one thing more, or for one less.
  void hold(int t) { ++open_[at(t)]; }
  void release(int t, double now) {
    if (--open_[at(t)] == 0) arrive(t, now);
  }
  // What else an end lets go.
  virtual void ended(int, double) {}

 private:
  void arrive(int t, double now) {
    const Task& task = step_.task(t);
    if (step_.on_device(task)) {
      waiting_[at(task.device)].emplace(key(t, now), t);
      touched_.insert(task.device);
      return;
    }
    const double start = std::max({now, sends_[at(task.device)], receives_[at(task.to)]});
    begin_[at(t)] = start;
    finish_[at(t)] = sends_[at(task.device)] = receives_[at(task.to)] = start + task.seconds;
    ends_.emplace(finish_[at(t)], t);
  }

  void end(int t, double now) {
    const Task& task = step_.task(t);
    if (step_.on_device(task)) {
      busy_[at(task.device)] = false;
      touched_.insert(task.device);
    }
    for (const int user : task.users) release(user, now);
    ended(t, now);
  }

  void start_all(double now) {
    for (const int device : touched_) {
      auto& waiting = waiting_[at(device)];
      if (busy_[at(device)] || waiting.empty()) continue;
      const int t = waiting.begin()->second;
      waiting.erase(waiting.begin());
      busy_[at(device)] = true;
      worked_[at(device)] += step_.task(t).seconds;
      begin_[at(t)] = now;
      finish_[at(t)] = now + step_.task(t).seconds;
      started_.push_back(t);
      ends_.emplace(finish_[at(t)], t);
    }
    touched_.clear();
  }

  using End = std::pair<double, int>;
  const Step& step_;
  std::vector<std::set<std::pair<Key, int>>> waiting_;  // by device
  std::vector<bool> busy_;
  std::vector<double> sends_, receives_;  // until when a side of a device's links is taken
  std::vector<double> begin_, finish_, worked_;
  std::vector<int> open_;  // what a task still waits for
  std::vector<int> started_;
  std::set<int> touched_;
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
};

// MXNet's engine, given the tasks in an order.
class Engine : public Player {
 public:
  Engine(const Step& step, const std::vector<int>& order)
      : Player(step), position_(step.tasks().size(), 0), next_(step.tasks().size(), kNone) {
    std::vector<int> last(at(step.devices()), kNone);
    for (size_t i = 0; i < order.size(); ++i) {
      const Task& task = step.task(order[i]);
      position_[at(order[i])] = static_cast<int>(2 * i + 1);
      // A copy is handed over right before the first that takes it.
      for (const int input : task.inputs) {
        if (step.task(input).kind == Kind::kCopy && position_[at(input)] == 0) {
          position_[at(input)] = static_cast<int>(2 * i);
        }
      }
      if (!task.in_turn) continue;
      int& before = last[at(task.device)];
      if (before != kNone) {
        next_[at(before)] = order[i];
        hold(order[i]);
      }
      before = order[i];
    }
  }

  // Where a task comes among all that wait equally long.
  int position(int t) const { return position_[at(t)]; }

 private:
  Key key(int t, double ready) const override { return {ready, position_[at(t)], t}; }
  void ended(int t, double now) override {
    if (next_[at(t)] != kNone) release(next_[at(t)], now);
  }

  std::vector<int> position_;
  std::vector<int> next_;  // the task in turn behind one
};

// The list scheduler: of the tasks that wait for a device, forward ones first, then those
// that bring a layer's gradient to its variables, then the one with the longest way to the
// end of the step behind it.
class ListScheduler : public Player {
 public:
  explicit ListScheduler(const Step& step) : Player(step), remaining_(step.remaining()), held_(step.tasks().size()) {
    hold_feeds();
  }

 private:
  Key key(int t, double) const override {
    const Task& task = step().task(t);
    return {task.forward ? 0 : task.reduction ? 1 : 2, -remaining_[at(t)], t};
  }
  void ended(int t, double now) override {
    for (const int held : held_[at(t)]) release(held, now);
  }

  // What brings a layer's weights begins one layer ahead: when the device has computed the
  // layer before the one that it computes meanwhile, so that it holds the weights of two
  // layers, and not of all.
  void hold_feeds() {
    const ParallelGraph& graph = step().graph();
    std::vector<std::map<int, int>> computed(at(step().devices()));  // by device: layer -> its first operator
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ParallelNode& node = graph.nodes[i];
      if (step().is_feed(static_cast<int>(i)) || node.layer < 0) continue;
      for (const Entry& e : node.inputs) {
        if (step().is_feed(e.node)) computed[at(node.device)].emplace(node.layer, static_cast<int>(i));
      }
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ParallelNode& node = graph.nodes[i];
      if (node.is_variable() || !step().is_feed(static_cast<int>(i))) continue;
      bool first = true;
      for (const Entry& e : node.inputs) first = first && node_of(graph, e).is_variable();
      const std::map<int, int>& layers = computed[at(node.device)];
      auto layer = layers.lower_bound(node.layer);
      if (!first || layer == layers.begin() || --layer == layers.begin()) continue;
      const int task = step().forward(static_cast<int>(i));
      held_[at(step().forward((--layer)->second))].push_back(task);
      hold(task);
    }
  }

  std::vector<double> remaining_;
  std::vector<std::vector<int>> held_;  // by task: those that begin when it has ended
};

double critical_path(const Step& step) {
  double longest = 0;
  for (const double seconds : step.remaining()) longest = std::max(longest, seconds);
  std::vector<double> work(at(step.devices()), 0), sent = work, received = work;
  for (const Task& task : step.tasks()) {
    if (!step.on_device(task)) {
      sent[at(task.device)] += task.seconds;
      received[at(task.to)] += task.seconds;
    } else {
      work[at(task.device)] += task.seconds;
    }
  }
  for (size_t d = 0; d < work.size(); ++d) longest = std::max({longest, work[d], sent[d], received[d]});
  return longest;
}

bool passes_on(const ParallelNode& node) { return node.op == "_copy" || node.operations == 0; }

// The layers that take what a node makes, passed on by other nodes; and whether it goes
// through the copy that several of them take (graph/share_parameters.h).
struct Takers {
  int first = std::numeric_limits<int>::max(), last = -1;
  bool shared = false;
};

std::vector<Takers> takers(const ParallelGraph& graph) {
  std::vector<Takers> all(graph.nodes.size());
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ParallelNode& node = graph.nodes[i];
    Takers here = all[i];
    if (!passes_on(node)) here = {node.layer, node.layer, false};
    if (node.operations > 0 && passes_on(node)) here.shared = here.first < here.last;
    for (const Entry& e : node.inputs) {
      Takers& of_input = all[at(e.node)];
      of_input = {std::min(of_input.first, here.first), std::max(of_input.last, here.last),
                  of_input.shared || here.shared};
    }
  }
  return all;
}

// The layers that take, with a gradient, what another device has computed.
std::set<int> crossed_layers(const ParallelGraph& graph, const std::vector<Takers>& of) {
  std::vector<bool> computed(graph.nodes.size(), false);  // not variables that are passed on
  std::set<int> layers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ParallelNode& node = graph.nodes[i];
    computed[i] = !node.is_variable() && !passes_on(node);
    for (const Entry& e : node.inputs) {
      computed[i] = computed[i] || computed[at(e.node)];
      const ParallelNode& from = node_of(graph, e);
      if (from.device == node.device || !from.requires_grad || !computed[at(e.node)]) continue;
      layers.insert(passes_on(node) ? of[i].first : node.layer);
    }
  }
  return layers;
}

// MXNet goes back from one variable after the other, and makes all that its gradient takes.
// Parameters that an unrolled network takes at every position have theirs from all of it: an
// operator's gradient of its other operands waits, once for each position, for its turn to be
// added up. So among the places of such variables those come first that are used last, whose
// gradients go through the fewest other operators, and of one operator's the largest. Not
// where devices take from each other in between: to go back on one is then to go back on all,
// whose gradients would wait instead.
void put_shared_in_order(const ParallelGraph& graph, std::vector<int>* arguments) {
  const std::vector<Takers> of = takers(graph);
  const std::set<int> crossed = crossed_layers(graph, of);
  std::vector<int> places, shared;
  for (size_t i = 0; i < arguments->size(); ++i) {
    const int variable = (*arguments)[i];
    const Takers& t = of[at(variable)];
    if (!t.shared || crossed.upper_bound(t.first) != crossed.upper_bound(t.last)) continue;
    places.push_back(static_cast<int>(i));
    shared.push_back(variable);
  }
  std::stable_sort(shared.begin(), shared.end(), [&](int a, int b) {
    const int first_a = of[at(a)].first, first_b = of[at(b)].first;
    if (first_a != first_b) return first_a > first_b;
    return byte_count(graph.nodes[at(a)].outputs[0]) > byte_count(graph.nodes[at(b)].outputs[0]);
  });
  for (size_t i = 0; i < places.size(); ++i) (*arguments)[at(places[i])] = shared[i];
}

Order list_schedule(const Step& step, const Order& serial) {
  ListScheduler scheduler(step);
  scheduler.play();
  Order out;
  for (const int t : scheduler.started()) {
    if (step.task(t).kind == Kind::kForward) out.nodes.push_back(step.task(t).node);
  }
  // A variable that gets no gradient is not asked for one: its place says nothing.
  out.arguments = serial.arguments;
  const auto complete = [&](int variable) {
    const int t = step.graph().nodes[at(variable)].requires_grad ? step.gradient(variable) : kNone;
    return t == kNone ? -1.0 : scheduler.finish(t);
  };
  std::stable_sort(out.arguments.begin(), out.arguments.end(),
                   [&](int a, int b) { return complete(a) < complete(b); });
  put_shared_in_order(step.graph(), &out.arguments);
  return out;
}

// What makes the states of BatchNorms goes first, as nothing of another device may come
// before it (state_makers()).
std::vector<int> with_states_first(const ParallelGraph& graph, std::vector<int> nodes) {
  const std::vector<bool> makers = state_makers(graph);
  std::stable_partition(nodes.begin(), nodes.end(), [&](int n) { return makers[at(n)]; });
  return nodes;
}

Simulation play(const Step& step, const Order& order) { return Engine(step, step.handed_over(order)).play(); }

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::kForward: return "forward";
    case Kind::kBackward: return "backward";
    case Kind::kSum: return "sum";
    case Kind::kCopy: return "copy";
  }
  return "";
}

Json made_json(const Made& made) { return json_array({made.task, made.output}); }

Json task_json(const ParallelGraph& graph, const Task& task, int position) {
  Json out = Json::object(), inputs = Json::array(), kept = Json::array();
  out.set("kind", Json(kind_text(task.kind)));
  out.set("node", Json(graph.nodes[at(task.node)].name));
  out.set("device", Json(task.device));
  out.set("to", Json(task.kind == Kind::kCopy ? task.to : task.device));
  out.set("position", Json(position));
  out.set("in_turn", Json(task.in_turn));
  out.set("operations", Json(task.operations));
  out.set("traffic", Json(task.traffic));
  out.set("sent", Json(task.sent));
  for (size_t i = 0; i < task.inputs.size(); ++i) inputs.push(made_json({task.inputs[i], task.read[i]}));
  for (const Made& made : task.kept) kept.push(made_json(made));
  out.set("inputs", std::move(inputs));
  out.set("kept", std::move(kept));
  out.set("made", json_array(task.made));
  if (task.over.task == kNone) return out;
  out.set("over", made_json(task.over));
  out.set("same", Json(task.same));
  return out;
}

Json seconds_json(const std::vector<double>& seconds) {
  Json out = Json::array();
  for (const double s : seconds) out.push(Json(s));
  return out;
}

}  // namespace

Order serial_order(const ParallelGraph& graph) {
  Order order;
  std::vector<int> first_use(graph.nodes.size(), 0);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    for (const Entry& e : graph.nodes[i].inputs) first_use[at(e.node)] = static_cast<int>(i);
  }
  // An identity stands for the variable that it copies.
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ParallelNode& node = graph.nodes[i];
    if (node.op == "_copy" && node_of(graph, node.inputs[0]).is_variable()) {
      first_use[at(node.inputs[0].node)] = first_use[i];
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    (graph.nodes[i].is_variable() ? order.arguments : order.nodes).push_back(static_cast<int>(i));
  }
  std::stable_sort(order.arguments.begin(), order.arguments.end(),
                   [&](int a, int b) { return first_use[at(a)] > first_use[at(b)]; });
  put_shared_in_order(graph, &order.arguments);
  order.nodes = with_states_first(graph, std::move(order.nodes));
  return order;
}

Topology default_topology(int devices, bool copy_engines) {
  Topology topology;
  topology.machine.flops = copy_engines ? 1e13 : 1e11;
  topology.machine.memory_bandwidth = copy_engines ? 5e11 : 1e10;
  topology.machine.links = {copy_engines ? LinkLevel{1e10, 1e-5} : LinkLevel{5e9, 2e-5}};
  const Mesh mesh(devices);
  std::vector<int> cuts;
  for (int c = 0; c < mesh.cut_count(); ++c) cuts.push_back(mesh.parts(c));
  topology.mesh = Mesh(cuts, std::vector<int>(cuts.size(), 0));
  return topology;
}

std::vector<Event> timeline(const ParallelGraph& graph, const Hardware& hardware, const Order& order) {
  const Step step(graph, hardware);
  std::vector<int> tasks = step.handed_over(order);
  Engine engine(step, tasks);
  engine.play();
  for (size_t t = 0; t < step.tasks().size(); ++t) {
    if (step.tasks()[t].kind == Kind::kCopy) tasks.push_back(static_cast<int>(t));
  }
  std::vector<Event> out;
  for (const int t : tasks) {
    const Task& task = step.task(t);
    const int to = task.kind == Kind::kCopy ? task.to : task.device;
    out.push_back({kind_text(task.kind), task.node, task.device, to, engine.begin(t), engine.finish(t)});
  }
  return out;
}

Json step_json(const ParallelGraph& graph, const Hardware& hardware, const Order& order) {
  const Step step(graph, hardware);
  const Engine engine(step, step.handed_over(order));
  Json tasks = Json::array(), gradients = Json::object(), heads = Json::array(), out = Json::object();
  for (size_t t = 0; t < step.tasks().size(); ++t) {
    tasks.push(task_json(graph, step.tasks()[t], engine.position(static_cast<int>(t))));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ParallelNode& node = graph.nodes[i];
    if (!node.is_variable() || !node.requires_grad) continue;
    const int task = step.gradient(static_cast<int>(i));
    if (task != kNone) gradients.set(node.name, Json(task));
  }
  for (const Entry& e : graph.heads) {
    if (step.forward(e.node) != kNone) heads.push(made_json({step.forward(e.node), e.index}));
  }
  out.set("start_seconds", Json(kStartSeconds));
  out.set("tasks", std::move(tasks));
  out.set("gradients", std::move(gradients));
  out.set("heads", std::move(heads));
  return out;
}

Schedule schedule(const ParallelGraph& graph, const Hardware& hardware, Ordering ordering) {
  const Step step(graph, hardware);
  Schedule out;
  out.order = serial_order(graph);
  out.critical_path = critical_path(step);
  out.serial = out.scheduled = play(step, out.order);
  const double worthwhile = out.serial.seconds * (1 - kWorthwhile);
  if (ordering == Ordering::kSerial || worthwhile < out.critical_path) return out;
  const Order serial = out.order;
  Order listed = list_schedule(step, serial);
  listed.nodes = with_states_first(graph, std::move(listed.nodes));
  for (const Order& order : {listed, Order{serial.nodes, listed.arguments}, Order{listed.nodes, serial.arguments}}) {
    const Simulation simulation = play(step, order);
    if (simulation.seconds >= out.scheduled.seconds || simulation.seconds > worthwhile) continue;
    out.scheduled = simulation;
    out.order = order;
  }
  return out;
}

ParallelGraph ordered(const ParallelGraph& graph, const Order& order) {
  ParallelGraph out;
  std::vector<int> position(graph.nodes.size(), kNone);
  for (const std::vector<int>* part : {&order.arguments, &order.nodes}) {
    for (const int i : *part) {
      position[at(i)] = static_cast<int>(out.nodes.size());
      out.nodes.push_back(graph.nodes[at(i)]);
    }
  }
  const auto moved = [&](Entry e) { return Entry{position[at(e.node)], e.index}; };
  for (ParallelNode& node : out.nodes) {
    for (Entry& e : node.inputs) e = moved(e);
  }
  for (const Entry& e : graph.heads) out.heads.push_back(moved(e));
  out.variables = graph.variables;
  out.outputs = graph.outputs;
  return out;
}

Json timeline_json(const ParallelGraph& graph, const std::vector<Event>& timeline) {
  Json out = Json::array();
  for (const Event& event : timeline) {
    Json json = Json::object();
    json.set("kind", Json(event.kind));
    json.set("node", Json(graph.nodes[at(event.node)].name));
    json.set("device", Json(event.device));
    json.set("to", Json(event.to));
    json.set("begin", Json(event.begin));
    json.set("end", Json(event.end));
    out.push(std::move(json));
  }
  return out;
}

Json schedule_json(const Schedule& schedule) {
  Json serial = Json::object(), out = Json::object();
  serial.set("seconds", Json(schedule.serial.seconds));
  serial.set("idle", seconds_json(schedule.serial.idle));
  out.set("seconds", Json(schedule.scheduled.seconds));
  out.set("critical_path", Json(schedule.critical_path));
  out.set("idle", seconds_json(schedule.scheduled.idle));
  out.set("unscheduled", std::move(serial));
  return out;
}

}  // namespace soybean
