// halo_cost() on random poolings and cuts, against the pieces of the exchanges one by
// one, and against what the lowered graph moves when nothing but halos has to move.
#include <random>

#include "lower/lower.h"
#include "search/halo.h"
#include "tests/check.h"
#include "tests/sample_requests.h"

namespace {

using soybean::Shape;
using soybean::Tiling;

std::mt19937 random_numbers(11);

int draw(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_numbers); }

struct Pooling {
  Shape in, out;
  std::string request;
};

Pooling random_pooling() {
  Pooling p;
  p.in = p.out = {draw(1, 4), draw(1, 4)};
  Shape kernel, stride, pad;
  for (int d = draw(1, 3); d > 0; --d) {
    kernel.push_back(draw(1, 5));
    stride.push_back(draw(1, 3));
    pad.push_back(draw(0, static_cast<int>(kernel.back()) - 1));
    p.in.push_back(kernel.back() + draw(0, 14));
    p.out.push_back((p.in.back() + 2 * pad.back() - kernel.back()) / stride.back() + 1);
  }
  soybean_tests::RequestBuilder b;
  const int data = b.input("data", p.in);
  const int pool = b.add("Pooling", "pool", {data},
                         {{"kernel", soybean::shape_text(kernel)},
                          {"stride", soybean::shape_text(stride)},
                          {"pad", soybean::shape_text(pad)}},
                         p.out);
  p.request = b.request(pool).text();
  return p;
}

// Cuts of the operator, none of them replicated: copies that nothing uses are not computed.
soybean::OperatorCuts random_cuts(const soybean::Mesh& mesh, const soybean::Rule& rule) {
  std::vector<int> choices, order;
  std::vector<int64_t> parts(rule.factors.size(), 1);
  for (int cut = 0; cut < mesh.cut_count(); ++cut) {
    const size_t f = static_cast<size_t>(draw(0, static_cast<int>(rule.factors.size()) - 1));
    const bool room = parts[f] * mesh.parts(cut) <= rule.factors[f].size;
    if (room) parts[f] *= mesh.parts(cut);
    choices.push_back(room ? static_cast<int>(f) : soybean::kOwner);
    order.push_back(draw(0, 100));
  }
  return soybean::OperatorCuts(choices, order);
}

soybean::Cost piece_by_piece(const soybean::Program& program, const soybean::Mesh& mesh, int node,
                             const soybean::OperatorCuts& cuts) {
  const soybean::Halos halos(program, mesh, node, cuts);
  const soybean::TensorType& type = program.graph().type(program.graph().node(node).inputs[0]);
  const Tiling tiling = input_tiling(program.rules[static_cast<size_t>(node)], 0, cuts);
  soybean::Cost cost;
  for (int device = 0; device < mesh.devices(); ++device) {
    if (!holds(mesh, tiling, device)) continue;
    const auto assembly =
        soybean::assembly(mesh, type.shape, tiling, halos.needed(0, device), tiling, device);
    for (const soybean::Piece& piece : assembly.terms[0]) {
      if (piece.source == device) continue;
      cost = cost + soybean::Cost{piece.region.elements() * type.itemsize, 1};
    }
  }
  return cost;
}

void check_pooling(const Pooling& pooling, const soybean::Mesh& mesh) {
  const soybean::Program program = soybean::prepare(pooling.request, "exact");
  const int node = 1;
  const soybean::Rule& rule = program.rules[node];
  CHECK(rule.known);
  soybean::Plan plan;
  plan.mesh = mesh;
  plan.strategy = "by hand";
  const soybean::OperatorCuts cuts = random_cuts(mesh, rule);
  plan.operators = {soybean::OperatorCuts(), cuts};
  plan.tensors[{0, 0}] = input_tiling(rule, 0, cuts);
  plan.tensors[{node, 0}] = output_tiling(rule, 0, cuts);
  plan.results = {plan.tensors[{node, 0}]};
  const soybean::Cost cost = halo_cost(program, mesh, node, cuts);
  CHECK(cost == piece_by_piece(program, mesh, node, cuts));
  const soybean::Traffic traffic = soybean::traffic(soybean::lower(program, plan));
  CHECK(traffic.forward == cost.bytes);
  CHECK(traffic.messages == cost.messages);
  CHECK(halo_bytes(program, mesh, node, soybean::OperatorCuts(std::vector<int>(
                                            cuts.size(), soybean::kReplicated))) == 0);
}

}  // namespace

int main() {
  const std::vector<std::vector<int>> meshes = {{2}, {3}, {2, 2}, {2, 3}, {5}, {2, 2, 2}, {2, 2, 3}, {2, 2, 2, 2}};
  for (int round = 0; round < 3000; ++round) {
    const size_t m = static_cast<size_t>(draw(0, static_cast<int>(meshes.size()) - 1));
    check_pooling(random_pooling(), soybean::Mesh(meshes[m]));
  }
  return soybean_tests::finish("halo_test");
}
