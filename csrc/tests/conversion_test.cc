// conversion_bound() against conversion() on random meshes, shapes and tilings:
// never more, and equal where the tilings are aligned and everything is even.
#include "tiling/counts.h"

#include <random>

#include "tests/check.h"

namespace {

using soybean::Choice;
using soybean::Tiling;

std::mt19937_64 random_numbers(8);

int draw(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_numbers); }

Tiling random_tiling(size_t cuts, int rank, bool partial) {
  std::vector<int> choices, order;
  for (size_t i = 0; i < cuts; ++i) {
    choices.push_back(draw(partial ? -3 : -2, rank - 1));
    order.push_back(draw(0, 100));
  }
  return Tiling(choices, order);
}


void no_conversion_moves_less_than_the_bound() {
  const std::vector<std::vector<int>> meshes = {{2}, {3}, {2, 2}, {2, 3}, {3, 3}, {2, 2, 2}, {2, 2, 3}, {2, 2, 2, 2}};
  int aligned = 0;
  for (int round = 0; round < 40000; ++round) {
    const soybean::Mesh mesh(meshes[static_cast<size_t>(draw(0, static_cast<int>(meshes.size()) - 1))]);
    const int rank = draw(1, 3);
    soybean::TensorType type;
    for (int d = 0; d < rank; ++d) type.shape.push_back(draw(0, 1) ? 48 * draw(1, 3) : draw(1, 40));
    const size_t cuts = static_cast<size_t>(mesh.cut_count());
    const Tiling from = random_tiling(cuts, rank, true), to = random_tiling(cuts, rank, false);
    if (!fits(mesh, from, type.shape) || !fits(mesh, to, type.shape)) continue;
    const size_t dims = static_cast<size_t>(rank);
    const soybean::Counts a(mesh, from, dims), b(mesh, to, dims);
    const int64_t bound = conversion_bound(mesh, type, a, b).bytes;
    const int64_t moved = conversion(mesh, type, from, to).cost.bytes;
    const bool equal = is_at_bound(mesh, type.shape, from, to);
    aligned += equal;
    soybean_tests::check(equal ? bound == moved : bound <= moved, __FILE__, __LINE__,
                         soybean::shape_text(type.shape) + ": " + tiling_text(from) + " -> " + tiling_text(to) +
                             ": bound " + std::to_string(bound) + ", moves " + std::to_string(moved));
  }
  CHECK(aligned > 1000);
}

}  // namespace

int main() {
  no_conversion_moves_less_than_the_bound();
  return soybean_tests::finish("conversion_test");
}
