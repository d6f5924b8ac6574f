// Small serial programs as requests of docs/interface.md, for tests.
#ifndef SOYBEAN_TESTS_SAMPLE_REQUESTS_H_
#define SOYBEAN_TESTS_SAMPLE_REQUESTS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/json.h"

namespace soybean_tests {

using soybean::Json;
using soybean::Shape;

// Builds a request node by node; a node is named by its index.
class RequestBuilder {
 public:
  int variable(const std::string& name, const Shape& shape, const char* role, bool gradient) {
    Json entry = Json::object();
    entry.set("role", role);
    entry.set("requires_grad", gradient);
    variables_.set(name, std::move(entry));
    return add("null", name, {}, {}, shape);
  }

  int input(const std::string& name, const Shape& shape) {
    return variable(name, shape, "input", false);
  }

  int parameter(const std::string& name, const Shape& shape) {
    return variable(name, shape, "parameter", true);
  }

  int add(const std::string& op, const std::string& name, const std::vector<int>& inputs,
          const std::map<std::string, std::string>& attrs, const Shape& shape) {
    Json node = Json::object();
    node.set("op", op);
    node.set("name", name);
    Json attributes = Json::object();
    for (const auto& [key, value] : attrs) attributes.set(key, value);
    node.set("attrs", std::move(attributes));
    Json entries = Json::array();
    for (const int input : inputs) entries.push(soybean::json_array({input, 0, 0}));
    node.set("inputs", std::move(entries));
    nodes_.push(std::move(node));

    Json shapes = Json::array();
    shapes.push(soybean::json_array(shape));
    shapes_.set(name, std::move(shapes));
    itemsizes_.set(name, soybean::json_array({4}));
    return count_++;
  }

  Json symbol(int head) const {
    Json symbol = Json::object();
    symbol.set("nodes", nodes_);
    Json heads = Json::array();
    heads.push(soybean::json_array({head, 0, 0}));
    symbol.set("heads", std::move(heads));
    return symbol;
  }

  Json request(int head) const {
    Json request = Json::object();
    request.set("symbol", symbol(head).text());
    request.set("shapes", shapes_);
    request.set("itemsizes", itemsizes_);
    request.set("variables", variables_);
    request.set("training", true);
    return request;
  }

 private:
  int count_ = 0;
  Json nodes_ = Json::array();
  Json shapes_ = Json::object();
  Json itemsizes_ = Json::object();
  Json variables_ = Json::object();
};

inline Json dense_request() {
  RequestBuilder b;
  const int data = b.input("data", {8, 6});
  const int w0 = b.parameter("w0", {10, 6}), b0 = b.parameter("b0", {10});
  const int fc0 = b.add("FullyConnected", "fc0", {data, w0, b0},
                        {{"num_hidden", "10"}, {"no_bias", "False"}, {"flatten", "True"}}, {8, 10});
  const int act = b.add("Activation", "act0", {fc0}, {{"act_type", "relu"}}, {8, 10});
  const int drop = b.add("Dropout", "drop0", {act}, {{"p", "0.5"}}, {8, 10});
  const int w1 = b.parameter("w1", {4, 10});
  const int fc1 = b.add("FullyConnected", "fc1", {drop, w1},
                        {{"num_hidden", "4"}, {"no_bias", "True"}, {"flatten", "True"}}, {8, 4});
  return b.request(b.add("log_softmax", "out", {fc1}, {{"axis", "-1"}}, {8, 4}));
}

// Tokens, and attention with samples and heads in one dim.
inline Json attention_request() {
  RequestBuilder b;
  const int tokens = b.input("tokens", {4, 6}), words = b.parameter("words", {10, 8});
  const int x = b.add("Embedding", "x", {tokens, words}, {{"input_dim", "10"}, {"output_dim", "8"}}, {4, 6, 8});
  const int split = b.add("Reshape", "split", {x}, {{"shape", "(0, 0, 2, -1)"}}, {4, 6, 2, 4});
  const int turned = b.add("transpose", "turned", {split}, {{"axes", "(0, 2, 1, 3)"}}, {4, 2, 6, 4});
  const int merged = b.add("Reshape", "merged", {turned}, {{"shape", "(-3, 0, 0)"}}, {8, 6, 4});
  const int scores =
      b.add("batch_dot", "scores", {merged, merged}, {{"transpose_b", "True"}}, {8, 6, 6});
  const int position = b.add("_contrib_arange_like", "position", {scores}, {{"axis", "-1"}}, {6});
  const int masked = b.add("broadcast_add", "masked", {scores, position}, {}, {8, 6, 6});
  const int weights = b.add("softmax", "weights", {masked}, {{"axis", "2"}}, {8, 6, 6});
  const int last = b.add("transpose", "last", {weights}, {{"axes", "(0, 2, 1)"}}, {8, 6, 6});
  const int context = b.add("batch_dot", "context", {last, merged}, {}, {8, 6, 4});
  const int side = b.add("Reshape", "side", {context}, {{"shape", "(6, 4, 8)"}}, {6, 4, 8});
  const int out = b.add("_contrib_interleaved_matmul_encdec_valatt", "out", {side, last},
                        {{"heads", "2"}}, {6, 4, 4});
  return b.request(out);
}

// An operator of the user's, whose rule comes with the graph.
inline Json given_rule_request() {
  RequestBuilder b;
  const int data = b.input("data", {8, 6, 4}), weight = b.parameter("weight", {10, 6}), bias = b.parameter("bias", {10});
  const int own = b.add("Custom", "own", {data, weight, bias}, {{"op_type", "mix"}, {"units", "20"}, {"axis", "1"}},
                        {8, 10, 4});
  Json request = b.request(b.add("tanh", "out", {own}, {}, {8, 10, 4}));
  request.set("rules", Json::parse(R"({"own": {"op": "mix", "text": "data[n,c,...] weight[m,c] bias[m]+ -> out[n,m,...]",
      "inputs": [{"name": "data", "dims": ["n", "c", "..."], "addend": false},
                 {"name": "weight", "dims": ["m", "c"], "addend": false}, {"name": "bias", "dims": ["m"], "addend": true}],
      "outputs": [{"name": "out", "dims": ["n", "m", "..."], "addend": false}],
      "extents": {"units": {"factor": "m", "block": 2}}, "shapes": {}, "constants": ["axis"], "join": "sum",
      "once": false}})"));
  return request;
}

// A residual block: convolution, BatchNorm, a branch that joins again.
inline Json convolution_request() {
  RequestBuilder b;
  const int data = b.input("data", {4, 3, 8, 8});
  const std::map<std::string, std::string> conv = {
      {"kernel", "(3, 3)"}, {"stride", "(1, 1)"}, {"pad", "(1, 1)"}, {"dilate", "(1, 1)"},
      {"num_filter", "4"},  {"num_group", "1"},   {"no_bias", "True"}};
  const int w0 = b.parameter("w0", {4, 3, 3, 3});
  const int c0 = b.add("Convolution", "conv0", {data, w0}, conv, {4, 4, 8, 8});
  const int gamma = b.parameter("gamma", {4}), beta = b.parameter("beta", {4});
  const int mean = b.variable("moving_mean", {4}, "auxiliary", false);
  const int var = b.variable("moving_var", {4}, "auxiliary", false);
  const int bn = b.add("BatchNorm", "bn", {c0, gamma, beta, mean, var},
                       {{"eps", "1e-05"}, {"momentum", "0.9"}, {"fix_gamma", "False"}, {"axis", "1"}},
                       {4, 4, 8, 8});
  const int relu = b.add("Activation", "relu0", {bn}, {{"act_type", "relu"}}, {4, 4, 8, 8});
  const int w1 = b.parameter("w1", {4, 4, 3, 3});
  const int c1 = b.add("Convolution", "conv1", {relu, w1}, conv, {4, 4, 8, 8});
  const int sum = b.add("elemwise_add", "join", {c1, relu}, {}, {4, 4, 8, 8});
  const int pool = b.add("Pooling", "pool", {sum},
                         {{"kernel", "(2, 2)"}, {"stride", "(2, 2)"}, {"pool_type", "max"}}, {4, 4, 4, 4});
  const int flat = b.add("Flatten", "flat", {pool}, {}, {4, 64});
  const int odd = b.add("no_such_operator", "odd", {flat}, {{"x", "1"}}, {4, 64});
  return b.request(b.add("mean", "out", {odd}, {{"axis", "()"}, {"keepdims", "False"}}, {1}));
}

}  // namespace soybean_tests

#endif  // SOYBEAN_TESTS_SAMPLE_REQUESTS_H_
