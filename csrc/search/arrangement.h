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

// An arrangement that fits those of all other divisions with most counts: the samples
// take the first cuts, the first of them divides first, and the other dims the last
// ones, from the last on. So what one operator cuts more and the next one less is
// always innermost, at the border between them. `samples` tells which choices those
// are; `last` is the choice that takes the last cuts.
Division canonical(const Mesh& mesh, const Division& counts, const std::vector<int>& samples, int last);

// For every choice of a plan the arrangements that are worth trying: all, where they
// are at most `limit`, else the canonical ones and those that fit their neighbours'.
// With `arranged`, the plan's own arrangements are among them, and they and their
// neighbours' are fitted; else the plan is taken for its counts.
Domains arranged_domains(const Space& space, const Plan& plan, size_t limit, bool arranged);

}  // namespace soybean

#endif  // SOYBEAN_SEARCH_ARRANGEMENT_H_
