// Arrangements: which cuts make which choice, and in which order they divide, once the
// counts are known.
//
// On few devices all arrangements can be tried. On many, they follow from each other:
// a tensor that arrives in one tiling is wanted with other counts, and the best
// arrangement of these keeps the outermost splits of each dim where they are, puts
// what has to move inside of them, and leaves copies alone (is_aligned() in
// tiling/counts.h). So the operators are arranged one after the other, each to fit
// the tensors that it takes.
#ifndef SOYBEAN_SEARCH_ARRANGEMENT_H_
#define SOYBEAN_SEARCH_ARRANGEMENT_H_

#include "search/problem.h"

namespace soybean {

// Every way to deal a division's choices to other cuts of their classes and to
// divide in other orders, `division` first; none but it where there are more than
// `limit`.
std::vector<Division> arrangements(const Mesh& mesh, const Division& division, size_t limit);

// An arrangement of `counts` that a tensor in tiling `reference` is turned into at the
// bound, if there is one. `copied`: choices that leave the tensor replicated.
Division aligned(const Mesh& mesh, const Division& reference, const Division& counts,
                 const std::vector<int>& copied = {}, bool cut_copies = false);

// For every choice of a plan the arrangements that are worth trying: all, up to
// `limit`, else those that fit their neighbours'.
Domains arranged_domains(const Space& space, const Plan& plan, size_t limit);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_ARRANGEMENT_H_
